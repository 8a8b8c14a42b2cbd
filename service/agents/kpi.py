"""The KPIs of the sample data: what each is made of, what people call it, and how its numbers are written."""

import re
import unicodedata
from dataclasses import dataclass

import numpy as np

from service.agents.sample_data import Mask, Reals, Snapshot

LONGEST_SEARCHED_TEXT = 4_000


@dataclass(frozen=True, slots=True)
class Kpi:
    """A count (`denominator` is None) or a ratio of two counts."""

    name: str
    label: str
    numerator: str
    denominator: str | None = None
    aliases: tuple[str, ...] = ()
    is_outcome: bool = False

    def series(self, data: Snapshot, mask: Mask) -> Reals:
        """Return the KPI's weekly values over the HCPs in `mask`."""
        top: Reals = data.weekly[self.numerator][:, mask].sum(axis=1).astype(np.float64)
        if self.denominator is None:
            return top
        return np.asarray(top / np.maximum(data.weekly[self.denominator][:, mask].sum(axis=1), 1))

    def per_hcp(self, data: Snapshot, start: int, stop: int) -> Reals:
        """Return each HCP's weekly mean (count) or ratio over the weeks start to stop; NaN where a ratio has no denominator."""
        top: Reals = data.weekly[self.numerator][start:stop].sum(axis=0).astype(np.float64)
        if self.denominator is None:
            return top / (stop - start)
        bottom = data.weekly[self.denominator][start:stop].sum(axis=0)
        return np.asarray(np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0))

    def write(self, value: float, *, digits: int | None = None, signed: bool = False) -> str:
        """Write a value, or a difference with `signed`: ratios in per cent, differences of ratios in percentage points."""
        sign = "+" if signed else ""
        if self.denominator is None:
            places = digits if digits is not None else (0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2)
            return f"{_unsign_zero(value, places):{sign},.{places}f} {self.label}"
        places = 1 if digits is None else digits
        return f"{_unsign_zero(100 * value, places):{sign}.{places}f} {'percentage points' if signed else '%'}"

    def write_size(self, value: float) -> str:
        """Write how large a difference or an error is, without a sign."""
        return self.write(abs(value), signed=True).lstrip("+")

    def write_range(self, low: float, high: float, *, digits: int | None = None, signed: bool = False) -> str:
        """Write two values with the unit once: `+7.9 to +11.9 percentage points`."""
        return f"{self.write(low, digits=digits, signed=signed).split(' ')[0]} to {self.write(high, digits=digits, signed=signed)}"


KPIS = (
    Kpi("trx", "TRx", "trx", aliases=("total prescriptions", "prescriptions", "scripts", "sales", "volume"), is_outcome=True),
    Kpi("nrx", "NRx", "nrx", aliases=("new prescriptions", "new scripts"), is_outcome=True),
    Kpi("market_share", "market share", "trx", "market_trx", aliases=("share", "share of market"), is_outcome=True),
    Kpi(
        "conversion_rate",
        "conversion rate",
        "conversions",
        "candidates",
        aliases=("conversion", "conversions", "patient conversion", "patient conversion rate", "converted 30d"),
        is_outcome=True,
    ),
    Kpi("calls", "calls", "calls", aliases=("rep visits", "call volume", "detailing")),
    Kpi("emails", "emails", "emails", aliases=("email volume", "digital touches")),
    Kpi("samples", "samples", "samples", aliases=("sample volume",)),
)


def _unsign_zero(value: float, places: int) -> float:
    """Return the value rounded, and 0.0 for what would be written as -0.0."""
    return round(value, places) + 0.0


def normal_form(text: str) -> str:
    """Return the text in the form in which names are compared: lower case, words of letters and digits, one blank between."""
    folded = unicodedata.normalize("NFKC", text[:LONGEST_SEARCHED_TEXT]).casefold()
    return " ".join(re.findall(r"[^\W_]+", folded))


def find_kpi(name: str) -> Kpi | None:
    """Return the KPI that a name or alias means, or None."""
    wanted = normal_form(name)
    return next((kpi for kpi in KPIS if wanted in {normal_form(known) for known in (kpi.name, kpi.label, *kpi.aliases)}), None)


def mentioned_kpi(question: str, among: tuple[Kpi, ...] = KPIS) -> Kpi | None:
    """Return the KPI whose name or alias occurs in a question, the longest where several do, or None."""
    text = f" {normal_form(question)} "
    found = [
        (len(form), kpi) for kpi in among for known in (kpi.name, kpi.label, *kpi.aliases) if f" {(form := normal_form(known))} " in text
    ]
    return max(found, key=lambda pair: pair[0])[1] if found else None
