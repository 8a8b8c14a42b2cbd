"""Learn what short answers do ("yes please", "never mind", "go on"), for any catalogue: see `service/routing/replies.py`.

Answers are the phrases of `datasets/replies` and some labels of CLINC150; against them stand requests and turns of dialogues.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from optimizers.dataset import Row
from service.routing.encoder import Encoding
from service.routing.label_free import Matrix
from service.routing.replies import KINDS, Reply

ANSWERS = {  # labels of CLINC150 that are answers
    "yes": Reply.ACCEPTS,
    "no": Reply.DISMISSES,
    "cancel": Reply.DISMISSES,
    "thank_you": Reply.THANKS,
    "goodbye": Reply.THANKS,
    "greeting": Reply.THANKS,
}
_UNCLEAR_OF_HWU = ("affirm", "confirm", "commandstop", "dontcare", "explain", "negate", "praise", "repeat")
UNCLEAR = ("maybe", "repeat", *(f"general_{what}" for what in _UNCLEAR_OF_HWU))
_CLOSING = re.compile(  # turns of dialogues that are answers, or may be
    r"^(?:yes|yeah|yep|yup|sure|ok|okay|no|nope|nah|great|perfect|alright|awesome|good|that|sounds|i'm|cool|nice|excellent)\b(?:\W+\w+){0,8}\W*$"
    r"|\b(?:thanks?|bye|good day|great day|that's all|that is all|that'll be all|nothing else|all i need)",
    re.I,
)


def read_answers(path: Path) -> list[tuple[str, Reply]]:
    """Read short answers, each with what it does, and each once more with a mark at its end: "no", "no." and "no!" are one answer."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(f"{row['text']}{mark}", Reply(row["kind"])) for row in rows for mark in ("", ".", "?" if row["kind"] == "continues" else "!")]


def learn_replies(
    answers: Sequence[tuple[str, Reply]], others: Sequence[Row], turns: Sequence[str], encode: Callable[[list[str]], list[Encoding]]
) -> tuple[Matrix, Matrix]:
    """Fit the multinomial logistic regression of what an answer does: short answers, against requests and turns of dialogues."""
    named = [(row.text, ANSWERS.get(row.label, Reply.SAYS)) for row in others if row.label not in UNCLEAR]
    says = [(text, Reply.SAYS) for text in dict.fromkeys(turns) if not _CLOSING.search(text)]
    parts = (
        (list(answers), 1.0),
        ([one for one in named if one[1] is not Reply.SAYS], 0.5),
        ([one for one in named if one[1] is Reply.SAYS], 1.5),
        (says, 1.0),
    )
    weight = np.concatenate([np.full(len(some), share / len(some)) for some, share in parts])
    found = np.stack([e.vector for some, _ in parts for e in encode([text for text, _ in some])])
    kinds = [KINDS.index(kind) for some, _ in parts for _, kind in some]
    model = LogisticRegression(C=10.0, max_iter=500)
    model.fit(found, kinds, sample_weight=weight / weight.sum() * len(found))
    return model.coef_.astype(np.float64), model.intercept_.astype(np.float64)
