"""Refuses regular expressions whose matching could take long, before any text meets them.

Python's matcher tries, from each position, at most as many ways through an expression as this module counts. Few ways and a capped
text bound the time. `*`, `+` and `{n,}` have no bound, so a pattern must give an upper one, such as {2,8}.
"""

import re
from collections.abc import Iterable
from math import inf
from re import _parser  # type: ignore[attr-defined]  # CPython's own parser: private, but the only one that reads exactly this syntax
from typing import Any

MAX_CHARACTERS = 2_000
MAX_WAYS = 2_000


def fault_in(expression: str) -> str | None:
    """Return what is wrong with a regular expression as a sentence, or None when it is fit for use."""
    if len(expression) > MAX_CHARACTERS:
        return f"the pattern is longer than {MAX_CHARACTERS:,} characters; shorten it."
    try:
        compiled = re.compile(expression, re.IGNORECASE)
        ways = _ways(_parser.parse(expression, re.IGNORECASE))
    except (re.error, OverflowError, RecursionError) as error:
        return f"this is not a regular expression ({error}); correct it."
    if ways == inf:
        return "the pattern has *, + or {n,}, which can take very long on some texts; give an upper bound, such as {1,8}."
    if ways > MAX_WAYS:
        return f"the pattern can match in {ways:,.0f} ways from one place (at most {MAX_WAYS:,} are allowed); simplify it."
    if compiled.match("") is not None:
        return "the pattern matches an empty text; make it ask for at least one character."
    return None


def _ways(nodes: Iterable[tuple[Any, Any]]) -> float:
    ways = 1.0
    for operation, argument in nodes:
        ways *= _ways_of(str(operation), argument)
    return ways


def _ways_of(operation: str, argument: Any) -> float:  # noqa: ANN401 (what a node holds depends on its operation)
    match operation:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            low, high, body = argument
            return _repeated(int(low), inf if high == _parser.MAXREPEAT else int(high), _ways(body))
        case "BRANCH":
            return sum(_ways(option) for option in argument[1])
        case "SUBPATTERN":
            return _ways(argument[-1])
        case "ATOMIC_GROUP":
            return _ways(argument)
        case "ASSERT" | "ASSERT_NOT":
            return _ways(argument[1])
        case "GROUPREF_EXISTS":
            return _ways(argument[1]) + (_ways(argument[2]) if argument[2] else 1.0)
        case _:
            return 1.0


def _repeated(low: int, high: float, body: float) -> float:
    """Return the ways of low to high rounds of a body: the sum of body^k, cut off where it is too much anyway."""
    if high == inf:
        return inf
    if body == 1.0:
        return high - low + 1
    total, rounds = 0.0, low
    while rounds <= high and total <= MAX_WAYS * MAX_WAYS:
        total += body ** min(rounds, 64)
        rounds += 1
    return total
