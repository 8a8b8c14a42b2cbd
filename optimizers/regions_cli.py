"""`pointsman routers regions`: where the student answers without the LM, how often the LM agrees, what that saves, what was given back."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from optimizers.evaluate import Figure
from optimizers.page import as_svg, render
from optimizers.regions import Region, draw_regions
from service.contracts.model import JsonObject
from service.routing.policy import Policy
from service.routing.regions import RegionTally


def show_regions(out: Console, number: str, policy: Policy, regions: Sequence[Region], whole: RegionTally) -> None:
    """Print a table, and what all regions come to."""
    out.print(sentence(number, policy, whole), highlight=False, soft_wrap=True)
    if not regions:
        return
    table = Table()
    for heading in ("intent", "alone from", "requests", "alone", "LM agrees"):
        table.add_column(heading)
    for one in regions:
        given_back = "given back" if one.given_back else None
        starts = given_back or ("never" if one.acts_from > 1.0 else f"{one.acts_from:.2f}")
        table.add_row(one.intent, starts, f"{one.requests:,}", f"{one.share_alone:.0%}", _agreement(one.agreement))
    out.print(table)
    for one in regions:
        if one.given_back:
            out.print(f"{one.intent} was given back: {one.given_back}", highlight=False, markup=False, soft_wrap=True)


def write_regions(path: Path, number: str, policy: Policy, regions: Sequence[Region], whole: RegionTally) -> None:
    """Write the page with the chart."""
    chart = as_svg(draw_regions(regions, 1.0 - policy.risk_target)) if regions else None
    said = sentence(number, policy, whole)
    page = render("regions.html.j2", title=f"Router version {number}: answered without the LM", said=said, chart=chart, regions=regions)
    path.write_text(page, encoding="utf-8")


def as_json(number: str, policy: Policy, regions: Sequence[Region], whole: RegionTally) -> JsonObject:
    """Return all of it for programs."""
    return {
        "version": number,
        "target": 1.0 - policy.risk_target,
        "share_local": whole.share_local,
        "usd_saved": whole.usd_saved,
        "regions": [
            {
                "intent": one.intent,
                "acts_from": None if one.acts_from > 1.0 else one.acts_from,
                "requests": one.requests,
                "local": one.alone,
                "audited": one.agreement.n,
                "agreement": one.agreement.value if one.agreement.n else None,
                "agreement_low": one.agreement.low,
                "agreement_high": one.agreement.high,
                "usd_saved": one.usd_saved,
                "given_back": one.given_back,
            }
            for one in regions
        ],
    }


def sentence(number: str, policy: Policy, whole: RegionTally) -> str:
    """Say what all regions come to."""
    share = whole.share_local
    if share is None:
        return (
            f"Version {number}: no request was counted yet. Requests are counted while a service runs with an LM that may decide "
            f"(POINTSMAN_LM); some of what the student answers alone is then put to the LM too (POINTSMAN_LM_AUDIT)."
        )
    agreement = Figure.share(whole.agreed, whole.audited)
    judged = f"the LM agrees on {_agreement(agreement)} of it" if agreement.n else "none of it was audited"
    saved = "and what that saved is not known" if whole.usd_saved is None else f"which saved {whole.usd_saved:,.4f} USD"
    calls = whole.local - whole.audited - whole.failed
    return (
        f"Version {number} answered {share:.1%} of {whole.local + whole.asked:,} requests without the LM; {judged} "
        f"(target {1.0 - policy.risk_target:.0%}); the LM was asked about {calls:,} requests less, {saved}."
    )


def _agreement(figure: Figure) -> str:
    return f"{figure.value:.1%} ({figure.low:.1%} to {figure.high:.1%}, n = {figure.n})" if figure.n else ""
