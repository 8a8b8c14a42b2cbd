"""What is plain HTTP's own: the envelopes. All else that holds of this adapter holds of every one: `test_agent_clients.py`."""

from service.adapters.http_agents import HttpAgents
from service.errors import ErrorCode
from service.ports import AgentFailure
from tests.contract.http_server import agent_at, answering, send, serving


async def test_the_body_is_the_dispatch_envelope_and_nothing_else() -> None:
    """So that an agent needs no more than JSON."""
    agents = HttpAgents()
    async with serving(answering()) as server:
        await send(agents, agent_at(server.port))
    await agents.close()

    assert [request.body.keys() for request in server.requests] == [{"dispatch"}]


async def test_a_handoff_without_its_envelope_is_none() -> None:
    """The contract is the envelope."""
    agents = HttpAgents()
    async with serving(answering(lambda envelope: envelope["handoff"])) as server:
        failure = await send(agents, agent_at(server.port))
    await agents.close()

    assert isinstance(failure, AgentFailure)
    assert (failure.code, failure.detail) == (
        ErrorCode.HANDOFF_INVALID,
        "causal_impact broke the handoff contract: handoff: Field required",
    )
