"""What is plain: asked before work that cannot be undone, so every doubt counts as one."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.routing.plain import plainly_agrees, plainly_asks

ASKS = """Deploy version 7
please put the tuned model in production
Could you retrain the churn model on the latest data?
v3 is throwing garbage for the West, put v2 back
The new one passed all checks, so let's ship it.
I want the churn model retrained with the August extract
@model_deployer roll back to version 6
training on gpu with early stopping, can you launch that
Undo the deployment from this morning!!
Retrain with a learning rate of 0.1 & 200 trees (gradient boosting)"""
DOUBTFUL = """Let's not deploy version 7
Version 7: do not deploy
I said don\u2019t deploy version 7
tell the team not to deploy version 7
I don't think we should deploy version 7
it is too early to deploy version 7
we decided against deploying version 7
Block version 7 from production
Can you cancel the deployment of version 7?
Deploy version 7. Just kidding.
Deploy version 7... nah
Deploy the model. Disregard.
Deploy the model. Strike that.
- do not deploy version 7
do *not* deploy version 7
do _not_ deploy version 7
do n\u200bot deploy version 7
d\u043en't deploy version 7
\u0501o not deploy version 7
\U0001d41d\U0001d428 \U0001d427\U0001d428\U0001d42d deploy version 7
\U0001f6ab deploy version 7
~~Deploy version 7~~
d o n o t deploy version 7
deploy version 7 bitte nicht
Which version is in production?
How do I deploy a model?
Why shouldn't we deploy version 7?
Should we deploy version 7?
Version 7 live?
version
is the model live\uff1f
canary... do they still take those birds down mines
is the model deployed yet
The deployment of version 7 failed
I regret deploying version 7
The email says: deploy version 7 now
> deploy version 7
My colleague wrote "deploy version 7"
{"intent": "model_deploy"}
@model_deployer
@model_deployer don't deploy
Keep the current model in production
"""
AGREES = [
    "yes",
    "Yes, please!",
    "ok go ahead",
    "sure, do it",
    "Great, yes",
    "approved",
    "yes. thank you",
    "Yes, that's right",
    "of course",
    "y",
]
DISAGREES = """yes once legal approved
do it tomorrow
first no, second yes
yeah right
I suppose so
ok I will do it myself
I did it
yes and no
sure?
k
b
yes when drift is low
yes, next week
ok, after you show me the metrics
already done
I'm good
thanks
great
no

\U0001f44d"""


@pytest.mark.parametrize("text", ASKS.splitlines())
def test_a_plain_request_is_plain(text: str) -> None:
    """Background in a clause of its own does not hide it."""
    assert plainly_asks(text)


@pytest.mark.parametrize("text", DOUBTFUL.splitlines())
def test_a_doubt_anywhere_makes_a_request_not_plain(text: str) -> None:
    """A negation in any place or disguise, a second thought, a question, a remark, a quotation."""
    assert not plainly_asks(text)


@pytest.mark.parametrize("text", AGREES)
def test_agreement_and_nothing_else_is_plain(text: str) -> None:
    """In words of agreement only."""
    assert plainly_agrees(text)


@pytest.mark.parametrize("text", DISAGREES.splitlines())
def test_a_condition_a_time_or_a_hesitation_is_no_agreement(text: str) -> None:
    """The question is asked again; a clear yes costs one word."""
    assert not plainly_agrees(text)


@given(st.text())
def test_a_negation_in_front_of_anything_is_never_plain(text: str) -> None:
    """Whatever follows."""
    assert not plainly_asks(f"do not {text}")
    assert not plainly_agrees(f"do not {text}")


@pytest.mark.parametrize("unit", ["a, ", "deploy: ", "yes ", "\u201ca", "'", "a b ", "do n", "tell "])
@pytest.mark.parametrize("size", [990, 100_000])
def test_any_text_takes_bounded_time(unit: str, size: int) -> None:
    """No pattern of it backtracks."""
    text = unit * (size // len(unit))
    started = time.process_time()

    plainly_asks(text)
    plainly_agrees(text)

    assert time.process_time() - started < 1.0
