"""When a request counts as several: a threshold that too few requests with one intent, or none, may cross."""

import pytest

from optimizers.dataset import Row
from optimizers.several import fit_several
from optimizers.student import fit
from service.routing.encoder import Encoder
from service.routing.policy import Policy
from service.routing.student import OUT_OF_SCOPE
from tests.small_data import GAP, HEALTH, OOS

POLICY = Policy(refuse_above=0.1, act_above=0.9, clarify_below=0.5, accepted_in_scope=0.95, risk_target=0.02, coverage=0.8)
WEEKS = range(16)
PLAIN = [Row(f"{t}, week {i}", n) for i in WEEKS for n, texts in (("gap_analysis", GAP), ("health_check", HEALTH)) for t in texts]
ELSEWHERE = [Row(f"{t} {i}", OUT_OF_SCOPE) for i in range(3) for t in OOS]
CHATTER = {
    "one intent each": [],
    "two intents under one label": [Row(f"{a}? {b}?", "gap_analysis") for a, b in zip(GAP, HEALTH, strict=True)],
    "out of scope, with a clause that is not": [Row(f"{a}. {b}?", OUT_OF_SCOPE) for a, b in zip(OOS, HEALTH, strict=True)],
}


@pytest.mark.parametrize("kind", CHATTER)
def test_the_threshold_rises_where_clauses_ask_for_too_much(encoder: Encoder, kind: str) -> None:
    """A clause that reads as a wish, in a text that has no such wish, counts as an error."""
    policy = fit_several(fit([*PLAIN, *ELSEWHERE, *CHATTER[kind]], encoder), POLICY)

    assert (policy.several_above > POLICY.clarify_below) is bool(CHATTER[kind])


def test_few_rows_prove_nothing(encoder: Encoder) -> None:
    """Then no request counts as several."""
    assert fit_several(fit([*PLAIN[:20], *ELSEWHERE], encoder), POLICY).several_above > 1.0
