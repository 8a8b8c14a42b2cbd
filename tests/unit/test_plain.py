"""What is plain: asked before work that cannot be undone. Whatever is not plain is asked about."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.loader import load_catalog
from service.routing.plain import plainly_agrees, plainly_commands

CATALOG = load_catalog()
COMMANDS = (*CATALOG.intent["model_deploy"].commands, *CATALOG.intent["ml_training"].commands)
PLAIN = """Deploy version 7
Please deploy version 7 to production.
deploy v7 now
Great, now deploy version 7!
Could you retrain the churn model on the latest data?
Can you please roll back the churn model?
I want you to retrain the churn model with the August extract
Let's ship version 7 to the Midwest
Hi team, put the tuned model in production, thanks
Take version 6 out of service
v3 is throwing garbage for the West, put v2 back
The new one passed all checks, so let's ship the thing.
Build me a classifier that tells adopters from those who stop
Retrain it with the August extract
Fine-tune the email-intent model on our templates
Roll back to v6 right away please"""
DOUBTFUL = """Let's not deploy version 7
Version 7: do not deploy
do not deploy version 7
donot deploy version 7
don\u2019t deploy version 7
deploy version 7, nvm
deploy version 7. Just kidding.
Deploy the model. Strike that.
Deploy version 7 after Maria approves it
Deploy version 7 if drift is low
Retrain the churn model once the data arrives
Maybe deploy version 7
Deploy version 7?
Deploy version 7?!
Can I deploy version 7?
Should we deploy version 7?
How do I deploy a model?
Which version is in production?
deploy version 7 needs approval
deploy version 7 failed
Bob deployed version 7
The deployment of version 7 failed
Afraid of deploying version 7
Remind me to deploy version 7
Summarize: deploy version 7
"deploy version 7"
Repeat 'deploy version 7'
> deploy version 7
- [x] deploy version 7
todo deploy version 7
@bob deploy version 7
model.deploy()
deploy(model)
version
version 7
production
deploy
deploy it
stop
keep version 6 in production
deploy \u0432\u0435\u0440\u0441\u0438\u044e 7
deploy version 7 \U0001f44e
deploy v\u200bersion 7
deploy version 7 \u0274\u1d0f\u1d1b
deploy version 7 nicht
deployment history of version 7
fitting the schedule
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
    "y",
    "yes, deploy it",
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
deployed it
I'm good
thanks
great
back
no
yes \U0001f44e

\U0001f44d"""


@pytest.mark.parametrize("text", PLAIN.splitlines())
def test_a_clause_that_begins_with_a_command_is_plain(text: str) -> None:
    """Whatever politeness and background stand around it."""
    assert plainly_commands(text, COMMANDS)


@pytest.mark.parametrize("text", DOUBTFUL.splitlines())
def test_everything_else_is_asked_about(text: str) -> None:
    """Negations, conditions, times, questions, remarks, quotations, code, names, nouns, and what points only."""
    assert not plainly_commands(text, COMMANDS)


def test_without_commands_nothing_is_plain() -> None:
    """A catalogue that lists none has everything asked about."""
    assert not plainly_commands("deploy version 7", ())


def test_a_catalogue_may_have_commands_that_negate_elsewhere() -> None:
    """A bank's customers say "block my card"; what only points, such as "stop it", may turn the question down."""
    commands = ("block", "cancel", "stop")

    assert plainly_commands("Block my card", commands)
    assert plainly_commands("please cancel the standing order to Anna", commands)
    assert not plainly_commands("unblock my card", commands)
    assert not plainly_commands("stop it", commands)


@pytest.mark.parametrize("text", AGREES)
def test_agreement_and_nothing_else_is_plain(text: str) -> None:
    """In words of agreement, with a command at most."""
    assert plainly_agrees(text, COMMANDS)


@pytest.mark.parametrize("text", DISAGREES.splitlines())
def test_a_condition_a_time_or_a_hesitation_is_no_agreement(text: str) -> None:
    """The question is asked again; a clear yes costs one word."""
    assert not plainly_agrees(text, COMMANDS)


@given(st.text())
def test_a_negation_in_front_of_anything_is_never_plain(text: str) -> None:
    """Whatever follows."""
    assert not plainly_commands(f"do not {text}", COMMANDS)
    assert not plainly_agrees(f"do not {text}", COMMANDS)


@pytest.mark.parametrize("unit", ["a, ", "deploy: ", "yes ", "please ", "'", "a b ", "let's ", "deploy a ", ". "])
@pytest.mark.parametrize("size", [199, 100_000])
def test_any_text_takes_bounded_time(unit: str, size: int) -> None:
    """No pattern of it backtracks."""
    text = unit * (size // len(unit))
    started = time.process_time()

    plainly_commands(text, COMMANDS)
    plainly_agrees(text, COMMANDS)

    assert time.process_time() - started < 1.0
