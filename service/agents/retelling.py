"""Earlier agents' results, put into sentences. What comes in is untrusted: anything that has not the expected shape is passed over."""

import math
from collections.abc import Mapping, Sequence

from service.agents.scope import quoted
from service.contracts.dispatch import AgentDispatch

CONTEXT_KEYS = ("agent_results", "earlier_results", "previous_results", "results")
MOST_RESULTS = 8
MOST_NUMBERS = 6


def earlier_results(dispatch: AgentDispatch) -> list[Mapping[str, object]]:
    """Return the results that the context holds under one of CONTEXT_KEYS: those with an output that can be read."""
    for key in CONTEXT_KEYS:
        value = dispatch.payload.context.get(key)
        items = [value] if isinstance(value, Mapping) else value if isinstance(value, Sequence) and not isinstance(value, str) else []
        found: list[Mapping[str, object]] = [item for item in items if isinstance(item, Mapping) and output_of(item)]
        if found:
            return found[:MOST_RESULTS]
    return []


def output_of(item: Mapping[str, object]) -> Mapping[str, object]:
    """Return the primary output of a result, whether it stands there, under `result`, or under `result.primary_output`."""
    result = item.get("result")
    for candidate in (item.get("primary_output"), result.get("primary_output") if isinstance(result, Mapping) else None, result):
        if isinstance(candidate, Mapping) and candidate:
            return candidate
    return {}


def confidence_of(item: Mapping[str, object]) -> float:
    """Return the result's own confidence, 0 where it has none."""
    result = item.get("result")
    value = item.get("confidence", result.get("confidence") if isinstance(result, Mapping) else None)
    found = _number(value)
    return min(1.0, max(0.0, found)) if found is not None else 0.0


def retell(item: Mapping[str, object]) -> str:
    """Return one or two sentences on a result."""
    output = output_of(item)
    name = item.get("agent_id")
    agent = quoted(name).strip("'") if isinstance(name, str) and name else "An agent"
    told = _effect(output) or _gap(output) or _forecast(output) or _probability(output) or _score(output) or _numbers(output)
    return f"{agent}: {_lacking(output)}{told}"


def _lacking(output: Mapping[str, object]) -> str:
    """Return what the result's own data lack of what was asked, so that a stand-in is not retold as the answer."""
    names = next((value for key in ("not_recorded", "not_in_data") if isinstance(value := output.get(key), Sequence) and value), ())
    known = [quoted(name).strip("'") for name in names if isinstance(name, str)][:MOST_NUMBERS] if not isinstance(names, str) else []
    return f"its data do not have {' or '.join(known)}; instead, " if known else ""


def _effect(output: Mapping[str, object]) -> str:
    ate, bounds = _number(output.get("ate")), output.get("confidence_interval")
    if ate is None:
        return ""
    words = f"the estimated effect of {_word(output, 'treatment')} on {_word(output, 'outcome')} is {ate:+.3g}"
    if isinstance(bounds, Sequence) and len(bounds) == 2:
        low, high = _number(bounds[0]), _number(bounds[1])
        if low is not None and high is not None:
            clear = (
                "which leaves out 0, so its direction is well supported"
                if low > 0 or high < 0
                else "which holds 0, so there may be no effect at all"
            )
            words += f", with an interval from {low:.3g} to {high:.3g}, {clear}"
    naive = _number(output.get("naive_difference"))
    if naive is not None:
        words += f"; the plain difference of {naive:+.3g} also counts who was chosen"
    passed = output.get("refutation_passed")
    return words + (f"; the refutation tests {'passed' if passed else 'failed'}." if isinstance(passed, bool) else ".")


def _gap(output: Mapping[str, object]) -> str:
    total, ranked = _number(output.get("total_gap")), output.get("ranked")
    if total is None:
        return ""
    words = f"the total gap is {total:,.0f} {_word(output, 'unit')}"
    first = ranked[0] if isinstance(ranked, Sequence) and not isinstance(ranked, str) and ranked else None
    if isinstance(first, Mapping) and (gap := _number(first.get("gap"))) is not None:
        words += f", of which {gap:,.0f} lie with {_word(first, 'brand')} in {_word(first, 'region')}"
    return words + "."


def _forecast(output: Mapping[str, object]) -> str:
    mean, recent = _number(output.get("mean_of_horizon")), _number(output.get("mean_of_last_weeks"))
    if mean is None or recent is None:
        return ""
    return f"{_word(output, 'target')} should average {mean:,.4g} over the coming weeks, after {recent:,.4g} in the last ones."


def _probability(output: Mapping[str, object]) -> str:
    probability = _number(output.get("probability"))
    return "" if probability is None else f"the probability of {_word(output, 'target')} is {100 * probability:.0f} %."


def _score(output: Mapping[str, object]) -> str:
    score = _number(output.get("score"))
    return "" if score is None else f"the score is {score:.2f} ({_word(output, 'grade')})."


def _numbers(output: Mapping[str, object]) -> str:
    pairs = [(key, number) for key, value in list(output.items())[:200] if (number := _number(value)) is not None]
    if not pairs:
        return f"its output has no numbers to explain; its fields are {', '.join(quoted(key) for key in list(output)[:MOST_NUMBERS])}."
    return "it reports " + ", ".join(f"{quoted(key)} = {number:.4g}" for key, number in pairs[:MOST_NUMBERS]) + "."


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _word(output: Mapping[str, object], key: str) -> str:
    value = output.get(key)
    return quoted(value).strip("'").replace("_", " ") if isinstance(value, str) and value else f"the {key}"
