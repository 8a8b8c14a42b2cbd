"""The examples of the glossary, each computed on the HCPs that a question is about. They know no dispatch.

Every function takes the data and the rows of the HCPs, and returns a sentence that goes on after "For example, for ...: ".
"""

from collections.abc import Callable

import numpy as np

from service.agents.decomposition import volume_and_share
from service.agents.kpi import Kpi, find_kpi
from service.agents.resampling import draw_weights, share_true, sum_by_group
from service.agents.sample_data import Mask, Reals, Snapshot
from service.agents.stability import ks, psi

Example = Callable[[Snapshot, Mask], str]


def _recent(data: Snapshot, mask: Mask, measure: str, weeks: int = 26) -> Reals:
    return np.asarray(data.weekly[measure][-weeks:, mask].mean(axis=0))


def ate(data: Snapshot, mask: Mask) -> str:
    """The plain difference of a programme's groups, and that within deciles."""
    trx, treated, decile = _recent(data, mask, "trx"), data.column("call_programme")[mask] == 1, data.column("decile")[mask]
    naive = trx[treated].mean() - trx[~treated].mean()
    strata = [(trx[treated & (decile == level)], trx[~treated & (decile == level)]) for level in np.unique(decile)]
    usable = [(len(a) + len(b), a.mean() - b.mean()) for a, b in strata if len(a) and len(b)]
    within = np.average([gap for _, gap in usable], weights=[size for size, _ in usable])
    return (
        f"HCPs in the call programme write {naive:+.2f} TRx a week against the others, but within equal deciles the mean difference is "
        f"only {within:+.2f}; the second number is the better estimate of the average effect."
    )


def mean_with_interval(data: Snapshot, mask: Mask) -> str:
    """A mean with its 95 % interval."""
    trx = _recent(data, mask, "trx")
    half = 1.96 * trx.std(ddof=1) / np.sqrt(len(trx))
    return (
        f"the {len(trx):,} HCPs wrote {trx.mean():.2f} TRx a week on average over the last 26 weeks, 95 % interval "
        f"{trx.mean() - half:.2f} to {trx.mean() + half:.2f}."
    )


def shuffled_labels(data: Snapshot, mask: Mask) -> str:
    """A difference, and how often shuffled labels give one as wide."""
    rng = np.random.default_rng(3)
    trx, academic = _recent(data, mask, "trx"), data.labels("setting")[mask] == "academic"
    gap = trx[academic].mean() - trx[~academic].mean()
    shuffled = [(mixed := rng.permutation(academic), trx[mixed].mean() - trx[~mixed].mean())[1] for _ in range(500)]
    share = float(np.mean(np.abs(shuffled) >= abs(gap)))
    chance = f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"
    return (
        f"academic HCPs write {gap:+.2f} TRx a week against community HCPs; with the labels shuffled 500 times a gap as wide came up in "
        f"{chance} of the cases."
    )


def who_was_chosen(data: Snapshot, mask: Mask) -> str:
    """How the share in a programme differs between deciles."""
    treated, decile = data.column("call_programme")[mask], data.column("decile")[mask]
    top, bottom = treated[decile >= 8].mean(), treated[decile <= 3].mean()
    return (
        f"{100 * top:.0f} % of the HCPs in deciles 8-10 are in the call programme but {100 * bottom:.0f} % of those in deciles 1-3, and "
        "high deciles write more anyway; a plain comparison mixes the two."
    )


def placebo(data: Snapshot, mask: Mask) -> str:
    """A difference with real and with shuffled membership."""
    rng = np.random.default_rng(4)
    trx, treated = _recent(data, mask, "trx"), data.column("call_programme")[mask] == 1
    real = trx[treated].mean() - trx[~treated].mean()
    fake = np.mean([(mixed := rng.permutation(treated), trx[mixed].mean() - trx[~mixed].mean())[1] for _ in range(200)])
    return (
        f"the difference between HCPs in and out of the call programme is {real:+.2f} TRx a week; with membership shuffled 200 times it "
        f"is {fake:+.2f} on average."
    )


def gain_by_setting(data: Snapshot, mask: Mask) -> str:
    """The gain of a programme's HCPs by setting."""
    gain = data.weekly["trx"][-26:, mask].mean(axis=0) - data.weekly["trx"][-78:-26, mask].mean(axis=0)
    treated, academic = data.column("call_programme")[mask] == 1, data.labels("setting")[mask] == "academic"
    effect = [gain[treated & group].mean() - gain[~treated & group].mean() for group in (academic, ~academic)]
    return (
        f"compared with the year before, the call programme's HCPs gained {effect[0]:+.2f} TRx a week more than others in academic "
        f"practices and {effect[1]:+.2f} in community ones."
    )


def one_prediction(data: Snapshot, mask: Mask) -> str:
    """One HCP's prediction split over three features."""
    columns = np.column_stack([data.column("decile")[mask], data.column("potential")[mask], data.column("digital_affinity")[mask]])
    trx = _recent(data, mask, "trx")
    centred = columns - columns.mean(axis=0)
    coefficients = np.linalg.lstsq(centred, trx - trx.mean(), rcond=None)[0]
    parts = centred[0] * coefficients
    first = data.labels("hcp_id")[mask][0]
    return (
        f"a linear model predicts {trx.mean() + parts.sum():.2f} TRx a week for {first}: the average of {trx.mean():.2f}, {parts[0]:+.2f} "
        f"for the decile, {parts[1]:+.2f} for the potential and {parts[2]:+.2f} for the digital affinity."
    )


def _drift_windows(data: Snapshot, mask: Mask, measure: str) -> tuple[Reals, Reals]:
    return data.weekly[measure][-16:-8, mask].mean(axis=0), data.weekly[measure][-8:, mask].mean(axis=0)


def psi_of_contacts(data: Snapshot, mask: Mask) -> str:
    """The PSI of a feature that drifted and of one that did not."""
    emails, calls = (psi(*_drift_windows(data, mask, measure)) for measure in ("emails", "calls"))
    return f"between the last 8 weeks and the 8 before, emails per HCP have a PSI of {emails:.2f} and calls one of {calls:.2f}."


def ks_of_emails(data: Snapshot, mask: Mask) -> str:
    """The distance of two distributions."""
    distance, p_value = ks(*_drift_windows(data, mask, "emails"))
    written = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2f}"
    return (
        f"the distributions of emails per HCP in the last 8 weeks and the 8 before are {distance:.2f} apart at the widest point "
        f"({written})."
    )


def faults_in_data(data: Snapshot, mask: Mask) -> str:
    """What a quality gate would see."""
    missing, negative = int(np.isnan(data.column("panel_size")[mask]).sum()), int((data.weekly["samples"][:, mask] < 0).sum())
    return (
        f"panel size is missing for {missing} of {int(mask.sum()):,} HCPs ({100 * missing / mask.sum():.1f} %) and {negative} sample "
        "counts are below 0; a gate that asks for 98 % complete rows would pass."
    )


def ends_of_deciles(data: Snapshot, mask: Mask) -> str:
    """The mean TRx of the highest and the lowest decile."""
    trx, decile = _recent(data, mask, "trx"), data.column("decile")[mask]
    return f"HCPs in decile 10 write {trx[decile == 10].mean():.1f} TRx a week, those in decile 1 {trx[decile == 1].mean():.1f}."


def level_of(name: str) -> Example:
    """Return the example of a KPI: its level in two quarters."""

    def example(data: Snapshot, mask: Mask) -> str:
        kpi: Kpi | None = find_kpi(name)
        if kpi is None:
            return ""
        series = kpi.series(data, mask)
        return (
            f"over the last 13 weeks it averaged {kpi.write(series[-13:].mean())}{'' if kpi.denominator else ' a week'}, after "
            f"{kpi.write(series[-26:-13].mean())} in the 13 weeks before."
        )

    return example


def leader_over_draws(data: Snapshot, mask: Mask) -> str:
    """How often the region with the most TRx a HCP stays first when HCPs are drawn anew."""
    trx, region = _recent(data, mask, "trx"), data.labels("region")[mask]
    names, group = np.unique(region, return_inverse=True)
    weights = draw_weights(len(trx))
    means = sum_by_group(trx, group.astype(np.int64), len(names), weights) / np.maximum(
        sum_by_group(np.ones(len(trx)), group.astype(np.int64), len(names), weights), 1e-9
    )
    first = int(np.argmax(means[0]))
    stays = 100 * share_true(np.argmax(means[1:], axis=1) == first)
    return (
        f"the {names[first]} has the most TRx per HCP ({means[0, first]:.2f} a week); with the HCPs drawn anew {len(weights)} times it "
        f"comes first in {stays:.0f} % of the draws, and that share would be the confidence of this finding."
    )


def email_targeting(data: Snapshot, mask: Mask) -> str:
    """Why digital affinity is no instrument for the email campaign: it moves the campaign, and TRx by another way."""
    affinity, emailed = data.column("digital_affinity")[mask], data.column("email_campaign")[mask] == 1
    high = affinity >= np.median(affinity)
    trx = _recent(data, mask, "trx")
    outside = [trx[group & ~emailed].mean() for group in (high, ~high)]
    return (
        f"{100 * emailed[high].mean():.0f} % of the HCPs with high digital affinity are in the email campaign and "
        f"{100 * emailed[~high].mean():.0f} % of the others, so affinity moves the campaign; but outside the campaign they write "
        f"{outside[0]:.2f} and {outside[1]:.2f} TRx a week too, so it acts on TRx by another way and is no valid instrument."
    )


def pull_of_deciles(data: Snapshot, mask: Mask) -> str:
    """How much a known cause raises the odds of being chosen: a yardstick for a hidden one."""
    treated, decile = data.column("call_programme")[mask], data.column("decile")[mask]
    top, bottom = (float(np.clip(treated[group].mean(), 1e-3, 1 - 1e-3)) for group in (decile >= 8, decile <= 3))
    ratio = top / (1.0 - top) / (bottom / (1.0 - bottom))
    return (
        f"the odds of being in the call programme are {ratio:.1f} times as high in deciles 8-10 as in deciles 1-3; a hidden cause as "
        "strong as the decile would therefore be far above a gamma of 2."
    )


def people_reached(data: Snapshot, mask: Mask) -> str:
    """Reach and frequency of calls over 13 weeks."""
    calls = data.weekly["calls"][-13:, mask].sum(axis=0)
    reached = calls > 0
    return (
        f"in the last 13 weeks {int(reached.sum()):,} of {len(calls):,} HCPs had at least one call, a reach of {100 * reached.mean():.1f} "
        f"%; these had {calls[reached].mean():.1f} calls each on average, which is the frequency."
    )


def volume_share_waterfall(data: Snapshot, mask: Mask) -> str:
    """The change of TRx between two quarters as the bars of a waterfall."""
    now = data.weeks
    volume, share = volume_and_share(data, mask, (now - 26, now - 13), (now - 13, now))
    return (
        f"TRx a week changed by {volume + share:+.1f} between the last two spans of 13 weeks: a bar of {volume:+.1f} for the size of the "
        f"market, one of {share:+.1f} for the share of it; this split is exact, so it leaves no residual."
    )


def slope_of_potential(data: Snapshot, mask: Mask) -> str:
    """A regression of TRx on potential."""
    trx, potential = _recent(data, mask, "trx"), data.column("potential")[mask]
    slope, base = np.polyfit(potential, trx, 1)
    fit = float(np.corrcoef(potential, trx)[0, 1] ** 2)
    return (
        f"each further TRx a week of an HCP's market goes with {slope:+.2f} TRx of the brand (from a base of {base:.2f}); the line "
        f"explains {100 * fit:.0f} % of the differences between HCPs."
    )


def trx_beside_share(data: Snapshot, mask: Mask) -> str:
    """Two measures that would need two axes."""
    trx = data.weekly["trx"][-13:, mask].sum(axis=1)
    market = data.weekly["market_trx"][-13:, mask].sum(axis=1)
    share = 100 * trx / market
    return (
        f"over the last 13 weeks TRx lie between {trx.min():,.0f} and {trx.max():,.0f} a week and the market share between "
        f"{share.min():.1f} and {share.max():.1f} %: on one axis the share would be a flat line at the bottom."
    )


def chances_of_conversion(data: Snapshot, mask: Mask) -> str:
    """What a score from 0 to 1 says of a group of HCPs."""
    candidates = data.weekly["candidates"][-4:, mask].sum(axis=0)
    converted = data.weekly["conversions"][-4:, mask].sum(axis=0) > 0
    few, many = (converted[group] for group in (candidates <= np.median(candidates), candidates > np.median(candidates)))
    return (
        f"{100 * many.mean():.0f} % of the HCPs with many candidate patients had a conversion in the last 4 weeks and "
        f"{100 * few.mean():.0f} % of those with few: a score of a group like that should be close to the share that is then observed."
    )
