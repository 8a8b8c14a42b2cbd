"""An agent is told what its entry in the catalogue says, and nothing else of the request."""

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntityType
from service.flows.work import MOST_SAID, Work, build_dispatch
from service.routing.history import UTTERANCES
from tests.unit.turns import CATALOG, a_request, an_agent, an_entity, some_work

HISTORY = [{"role": "user", "content": str(i) * (MOST_SAID + 5)} for i in range(UTTERANCES + 1)]
CONTEXT = {"treatment": "visits", "secret": "s3cret", "raw_query": "faked", "conversation_history": "faked", "user_id": "faked"}
REQUEST = a_request("Did it?", history=HISTORY, context=CONTEXT)
ENTITIES = (an_entity("brand", "Kisqali"), an_entity("hcp_id", "HCP-00007"))


def told(*receives: str, work: Work | None = None) -> AgentDispatch:
    """Return the dispatch to an agent that declares what it receives."""
    agent = an_agent(CATALOG, receives=receives)
    return build_dispatch(agent, work or some_work(request=REQUEST, entities=ENTITIES), 1.0, uuid4())


PROJECTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any], list[str]]] = {
    "nothing": ((), {}, []),
    "the question": (("raw_query",), {"raw_query": "Did it?"}, []),
    "all entities": (("entities",), {}, ["Kisqali", "HCP-00007"]),
    "one kind of entity": (("entities.brand",), {}, ["Kisqali"]),
    "one key of the context": (("context.treatment",), {"treatment": "visits"}, []),
    "a key that the caller did not send": (("context.outcome",), {}, []),
    "the whole context, without what a caller cannot say for itself": (("context",), {"treatment": "visits", "secret": "s3cret"}, []),
    "who asks": (("user_id", "session_id"), {"user_id": REQUEST.user_id, "session_id": REQUEST.session_id}, []),
    "what was said before": (
        ("conversation_history",),
        {"conversation_history": [{"role": "user", "content": str(i) * MOST_SAID} for i in range(1, UTTERANCES + 1)]},
        [],
    ),
}


@pytest.mark.parametrize(("receives", "context", "entities"), PROJECTIONS.values(), ids=PROJECTIONS)
def test_an_agent_receives_what_it_declares(receives: tuple[str, ...], context: dict[str, Any], entities: list[str]) -> None:
    """Each part of the request by its name; the question, the user and the conversation cannot be faked by the context."""
    payload = told(*receives).payload

    assert (payload.context, [e.value for e in payload.entities]) == (context, entities)


def test_without_a_declaration_it_is_the_question_and_its_entities() -> None:
    """The least that an agent can work with is the default."""
    assert Agent.model_fields["receives"].default == ("raw_query", "request", "entities")


def test_what_a_mere_answer_agrees_to_is_told_beside_it() -> None:
    """The agent need not find out what "yes" means; where the question speaks for itself there is nothing to add."""
    answer = told("raw_query", "request", work=some_work(request=a_request("yes"), asked="Train a churn model."))

    assert answer.payload.context == {"raw_query": "yes", "request": "Train a churn model."}
    assert told("raw_query", "request").payload.context == {"raw_query": "Did it?"}


def test_a_conversation_that_has_not_begun_is_not_sent() -> None:
    """An agent need not tell an empty list from none."""
    assert told("conversation_history", work=some_work()).payload.context == {}


def test_what_earlier_steps_brought_goes_before_what_the_caller_says() -> None:
    """A caller cannot slip a scope of its own into a pipeline."""
    request = a_request("Train.", context={"scope": "faked"})

    dispatch = told("context", work=some_work(request=request, inputs={"scope": {"brand": "Kisqali"}}))

    assert dispatch.payload.context == {"scope": {"brand": "Kisqali"}}


PARTS = [
    "raw_query",
    "user_id",
    "session_id",
    "conversation_history",
    "entities",
    *(f"entities.{e}" for e in EntityType),
    "context.treatment",
]


@given(receives=st.lists(st.sampled_from(PARTS), unique=True))
def test_what_is_not_declared_is_never_sent(receives: list[str]) -> None:
    """Whatever the declaration, nothing of the rest is anywhere in the dispatch."""
    sent = told(*receives).model_dump_json()

    assert "s3cret" not in sent
    assert ("Did it?" in sent) is ("raw_query" in receives)
    assert ("visits" in sent) is ("context.treatment" in receives)
    assert ("HCP-00007" in sent) is bool({"entities", "entities.hcp_id"} & set(receives))


@pytest.mark.parametrize("required", [0.0, 0.9])
def test_the_callers_required_confidence_goes_before_the_agents(required: float) -> None:
    """Zero is a wish too."""
    request = a_request(preferences={"required_confidence": required})

    assert told(work=some_work(request=request)).payload.constraints.required_confidence == required


def test_a_query_that_is_sent_again_has_the_same_dispatch_ids() -> None:
    """So an agent can know a part that it has done, whichever process asks; whatever else is done has another id."""
    agent, other = an_agent(CATALOG), an_agent(CATALOG, "gap_analyzer")
    work, again = some_work(request=REQUEST), some_work(request=REQUEST, correlation_id="another", seconds=1.0)

    assert work.dispatch_id(agent) == again.dispatch_id(agent)
    others = [
        some_work(request=REQUEST, tenant="acme"),
        some_work(request=REQUEST, intent="prediction"),
        some_work(request=a_request("Did it?")),
    ]
    assert len({work.dispatch_id(agent), work.dispatch_id(other), *(one.dispatch_id(agent) for one in others)}) == 5
