"""Fifteen labelled requests: what the smallest fits in the tests are made of."""

from optimizers.dataset import Row
from service.routing.student import OUT_OF_SCOPE

GAP = (
    "where are we below potential; which regions lag their target; find untapped opportunity; who trails the benchmark; "
    "where do we leave sales"
).split("; ")
HEALTH = (
    "is the pipeline up; are all services running; did the nightly job fail; any errors in the platform; is the system healthy"
).split("; ")
OOS = "what is the capital of France; book me a flight; write a poem about cats; who won the match; how do I cook rice".split("; ")
ROWS = [Row(t, label) for label, texts in (("gap_analysis", GAP), ("health_check", HEALTH), (OUT_OF_SCOPE, OOS)) for t in texts]
TWO = [row for row in ROWS if row.label != OUT_OF_SCOPE]
