"""The synthetic data set that the reference agents work on: 2,400 HCPs, three brands, 104 weeks, true effects known.

The numbers are the same in every process: each week has its own random stream, so a longer data set begins with the shorter
one. Only the calendar moves: the last week is the last whole week before `today`. Nothing here knows an agent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from service.agents import truth

Counts = NDArray[np.int64]
Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]

MEASURES = ("trx", "nrx", "market_trx", "calls", "emails", "samples", "speaker_events", "candidates", "conversions")
PROGRAMMES = ("call_programme", "email_campaign", "speaker_programme", "sample_programme")


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The data as one process sees them.

    `hcps` has one row an HCP; `weekly` has, for each of MEASURES, an array of weeks (rows) by HCPs (columns, in the order of `hcps`).
    """

    hcps: pd.DataFrame
    weekly: Mapping[str, Counts]
    week_ends: tuple[date, ...]

    @property
    def weeks(self) -> int:
        """The number of weeks."""
        return len(self.week_ends)

    @property
    def programme_start(self) -> int:
        """The index of the first week in which the programmes ran."""
        return truth.WEEKS - truth.PROGRAMME_WEEKS

    def column(self, name: str) -> Reals:
        """Return one numeric column of `hcps` as an array."""
        return self.hcps[name].to_numpy(dtype=np.float64)

    def labels(self, name: str) -> NDArray[np.str_]:
        """Return one text column of `hcps` as an array."""
        return self.hcps[name].to_numpy(dtype=np.str_)


@lru_cache(maxsize=1)
def load_snapshot() -> Snapshot:
    """Return the data set, generated once a process."""
    return generate_snapshot(today=date.today())


def generate_snapshot(*, today: date, seed: int = truth.SEED, weeks: int = truth.WEEKS) -> Snapshot:
    """Generate the data set.

    Args:
        today: The last week ends on the last Sunday before this day.
        seed: Another seed gives another draw with the same true effects.
        weeks: More than 104 weeks add the future that a forecast can be judged by.
    """
    hcps, latent = _draw_hcps(np.random.default_rng([seed, 0]))
    drawn = [_draw_week(np.random.default_rng([seed, 1, week]), week, hcps, latent) for week in range(weeks)]
    weekly = {name: np.stack([one[name] for one in drawn]) for name in MEASURES}
    _blemish(np.random.default_rng([seed, 2]), hcps, weekly)
    for values in weekly.values():
        values.flags.writeable = False
    last = today - timedelta(days=today.weekday() + 1) + timedelta(weeks=weeks - truth.WEEKS)
    return Snapshot(hcps=hcps, weekly=weekly, week_ends=tuple(last - timedelta(weeks=weeks - 1 - week) for week in range(weeks)))


@dataclass(frozen=True, slots=True)
class _Latent:
    """What the process knows of each HCP and the agents do not see."""

    market: Reals
    share: Reals
    growth: Reals
    uplift: Reals
    conversion: Reals
    conversion_uplift: Reals
    conversion_drop: Reals


def _draw_hcps(rng: np.random.Generator) -> tuple[pd.DataFrame, _Latent]:
    count = truth.HCPS_PER_BRAND * len(truth.BRANDS)
    brand = np.repeat(np.arange(len(truth.BRANDS)), truth.HCPS_PER_BRAND)
    region = rng.choice(len(truth.REGIONS), count, p=truth.REGION_SHARE)
    academic = rng.random(count) < truth.ACADEMIC_SHARE
    market = rng.gamma(5.0, 2.4, count) * np.array(truth.REGION_POTENTIAL)[region]
    digital = rng.beta(2.0, 2.0, count)
    potential = market * rng.lognormal(0.0, 0.1, count)
    decile = _deciles(potential, brand)
    size = (potential - potential.mean()) / potential.std()
    flags = {
        "call_programme": _assign(rng, 0.28 * (decile - 5.5) + 0.30 * size),
        "email_campaign": _assign(rng, 3.0 * (digital - 0.5) + 0.15 * (decile - 5.5)),
        "speaker_programme": _assign(rng, -1.0 + 0.25 * (decile - 5.5)),
        "sample_programme": _assign(rng, 0.20 * (decile - 5.5)),
    }
    frame = pd.DataFrame(
        {
            "hcp_id": [f"HCP-{number:05d}" for number in range(1, count + 1)],
            "brand": np.array(truth.BRANDS)[brand],
            "specialty": _specialties(rng, brand),
            "region": np.array(truth.REGIONS)[region],
            "setting": np.where(academic, "academic", "community"),
            "decile": decile,
            "potential": potential.round(2),
            "panel_size": (potential * 15.0 * rng.lognormal(0.0, 0.2, count)).round(),
            "digital_affinity": digital.round(3),
            **{name: flag.astype(np.int64) for name, flag in flags.items()},
        }
    )
    return frame, _latent(brand, region, academic, market, decile, digital, flags)


def _latent(
    brand: Counts, region: Counts, academic: Mask, market: Reals, decile: Counts, digital: Reals, flags: dict[str, Mask]
) -> _Latent:
    attainment = np.array([truth.ATTAINMENT[name] for name in truth.BRANDS])[brand, region]
    base = np.array([truth.BASE_SHARE[name] for name in truth.BRANDS])[brand]
    call = np.array([truth.CALL_EFFECT[name] for name in truth.BRANDS])[brand, np.where(academic, 0, 1)]
    dropped = (np.array(truth.BRANDS)[brand] == truth.CONVERSION_DROP[0]) & (np.array(truth.REGIONS)[region] == truth.CONVERSION_DROP[1])
    return _Latent(
        market=market,
        share=base * (0.8 + 0.04 * decile) * (1.0 + 0.3 * (digital - 0.5)) * attainment,
        growth=np.array([truth.WEEKLY_GROWTH[name] for name in truth.BRANDS])[brand],
        uplift=flags["call_programme"] * call + sum(flags[name] * effect for name, effect in truth.TRX_EFFECT.items()),
        conversion=0.20 + 0.01 * decile + 0.05 * (digital - 0.5),
        conversion_uplift=np.asarray(sum(flags[name] * effect for name, effect in truth.CONVERSION_EFFECT.items())),
        conversion_drop=dropped * truth.CONVERSION_DROP[2],
    )


def _draw_week(rng: np.random.Generator, week: int, hcps: pd.DataFrame, latent: _Latent) -> dict[str, Counts]:
    active = float(week >= truth.WEEKS - truth.PROGRAMME_WEEKS)
    drifted = week >= truth.WEEKS - truth.DRIFT_WEEKS
    season = 1.0 + truth.SEASON_AMPLITUDE * np.sin(2.0 * np.pi * week / truth.SEASON_PERIOD)
    decile = hcps["decile"].to_numpy()
    digital = hcps["digital_affinity"].to_numpy()
    flag = {name: hcps[name].to_numpy() * active for name in PROGRAMMES}
    market = latent.market * season
    expected = market * latent.share * (1.0 + latent.growth * (week - truth.WEEKS + 1)) + active * latent.uplift
    trx = rng.poisson(expected)
    candidates = rng.poisson(0.06 * latent.market)
    probability = latent.conversion + active * latent.conversion_uplift + drifted * latent.conversion_drop
    return {
        "trx": trx,
        "nrx": rng.binomial(trx, truth.NRX_SHARE),
        "market_trx": trx + rng.poisson(np.maximum(market - expected, 0.5)),
        "calls": rng.poisson(0.15 + 0.03 * decile + 0.6 * flag["call_programme"]),
        "emails": rng.poisson((0.3 + 0.6 * digital + 0.5 * flag["email_campaign"]) * (truth.EMAIL_DRIFT if drifted else 1.0)),
        "samples": rng.poisson(0.2 + 0.02 * decile + 0.5 * flag["sample_programme"]),
        "speaker_events": rng.poisson(0.01 + 0.08 * flag["speaker_programme"]),
        "candidates": candidates,
        "conversions": rng.binomial(candidates, probability),
    }


def _blemish(rng: np.random.Generator, hcps: pd.DataFrame, weekly: dict[str, Counts]) -> None:
    """Add the two known faults that a data check should find."""
    hcps.loc[rng.choice(len(hcps), truth.MISSING_PANEL_SIZES, replace=False), "panel_size"] = np.nan
    cells = rng.choice(truth.WEEKS * len(hcps), truth.NEGATIVE_SAMPLE_ROWS, replace=False)
    weekly["samples"][cells // len(hcps), cells % len(hcps)] = -1


def _assign(rng: np.random.Generator, score: NDArray[np.floating]) -> Mask:
    return np.asarray(rng.random(len(score)) < 1.0 / (1.0 + np.exp(-score)))


def _deciles(potential: Reals, brand: Counts) -> Counts:
    rank = pd.Series(potential).groupby(brand).rank(pct=True).to_numpy()
    return np.asarray(np.clip(np.ceil(rank * 10.0), 1, 10), dtype=np.int64)


def _specialties(rng: np.random.Generator, brand: Counts) -> list[str]:
    second = rng.random(len(brand)) < 0.4
    return [truth.SPECIALTIES[truth.BRANDS[index]][int(other)] for index, other in zip(brand, second, strict=True)]
