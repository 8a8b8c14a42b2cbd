"""Cards of A2A agents: which are believed, how often they are fetched, and that none sends a request, or our key, elsewhere."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from a2a.types import AgentCard

from service.adapters.a2a_agents import A2aAgents
from service.adapters.a2a_card import KEPT_SECONDS, MAX_CARD_BYTES, CardInvalid, Cards, read_card
from service.catalog.loader import load_catalog
from service.catalog.model import AgentKey, AgentTls
from service.contracts.handoff import AgentHandoff
from service.errors import ErrorCode
from service.ports import AgentFailure
from tests.conftest import ROOT
from tests.contract.a2a_server import asks_for_card, behind_card, card, handing_off, saying_message, text
from tests.contract.agent_client_suite import failed
from tests.contract.http_server import TIMEOUT, Answer, Request, Server, Writer, agent_at, hanging, http, saying, send, serving

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
async def client() -> AsyncIterator[A2aAgents]:
    """The client under test, closed at the end."""
    agents = A2aAgents()
    yield agents
    await agents.close()


async def hello(server: Server, request: Request, writer: Writer) -> None:
    """Answer the message with a text."""
    await saying_message(text("Hello."))(server, request, writer)


def card_only(answer: Answer) -> Answer:
    """Do something else when the card is asked for."""

    async def answer_both(server: Server, request: Request, writer: Writer) -> None:
        await (answer if asks_for_card(request) else hello)(server, request, writer)

    return answer_both


def interface(**fields: str) -> Change:
    """Return a change of the card's one interface."""
    return lambda card: {**card, "supportedInterfaces": [{**card["supportedInterfaces"][0], **fields}]}


def secured(*alternatives: list[str], **schemes: dict[str, Any]) -> Change:
    """Return a change that asks for security: the schemes of one of the alternatives."""
    asked = [{"schemes": {name: {"list": []} for name in names}} for names in alternatives]
    return lambda card: {**card, "securitySchemes": schemes, "securityRequirements": asked}


API_KEY = {"apiKeySecurityScheme": {"location": "header", "name": "X-Api-Key"}}
QUERY_KEY = {"apiKeySecurityScheme": {"location": "query", "name": "X-Api-Key"}}
BEARER = {"httpAuthSecurityScheme": {"scheme": "Bearer"}}
BASIC = {"httpAuthSecurityScheme": {"scheme": "basic"}}
OAUTH = {"oauth2SecurityScheme": {"flows": {}}}
OPEN_ID = {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.example"}}
MTLS: dict[str, Any] = {"mtlsSecurityScheme": {}}
BAD_CARDS: dict[str, tuple[Change, str]] = {
    "a list": (lambda card: [card], "something else than an agent card"),
    "an empty object": (lambda card: {}, "no interface"),
    "null": (lambda card: None, "something else than an agent card"),
    "of the wrong types": (lambda card: {**card, "supportedInterfaces": "x"}, "something else than an agent card"),
    "skills that are none": (lambda card: {**card, "skills": ["x"]}, "something else than an agent card"),
    "nested without end": (lambda card: {**card, "capabilities": {"extensions": [{"params": deep(60)}]}}, "something else"),
    "larger than is read": (lambda card: {**card, "description": "x" * MAX_CARD_BYTES}, "more than 500000 bytes"),
    "gRPC only": (interface(protocolBinding="GRPC"), "offers GRPC; Pointsman speaks JSONRPC and HTTP+JSON"),
    "version 0.3": (interface(protocolVersion="0.3.0"), "version 0.3.0; Pointsman speaks 1.0"),
    "version 1.1": (interface(protocolVersion="1.1"), "version 1.1;"),
    "version 2.0": (interface(protocolVersion="2.0"), "version 2.0;"),
    "no version": (interface(protocolVersion=""), "version none;"),
    "a version that is none": (interface(protocolVersion="latest"), "version latest;"),
    "of version 0.3 throughout": (lambda card: {"name": "old", "url": "http://127.0.0.1:1/", "protocolVersion": "0.3.0"}, "version 0.3.0;"),
    "another port": (interface(url="http://127.0.0.1:1/agents/causal_impact"), "not of the origin"),
    "another host": (interface(url="http://elsewhere.example/agents"), "not of the origin"),
    "a relative address": (interface(url="/agents/causal_impact"), "not of the origin"),
    "an address with odd signs": (lambda card: interface(url=card["supportedInterfaces"][0]["url"] + "\0")(card), "not of the origin"),
    "an address that is none": (interface(url="http://[::1"), "not of the origin"),
    "a required extension": (
        lambda card: {**card, "capabilities": {"extensions": [{"uri": "urn:odd", "required": True}]}},
        "requires the extension 'urn:odd'",
    ),
    "a key that we lack": (secured(["k"], k=API_KEY), "asks for the security k"),
    "a scheme that is not described": (secured(["k"]), "asks for the security k"),
    "all of two": (secured(["k", "b"], k=API_KEY, b=BEARER), "asks for the security b, k"),
}


def deep(levels: int) -> dict[str, Any]:
    """Return objects within objects."""
    inner: dict[str, Any] = {}
    for _ in range(levels):
        inner = {"in": inner}
    return inner


@pytest.mark.parametrize(("change", "said"), BAD_CARDS.values(), ids=BAD_CARDS)
async def test_a_card_by_which_the_agent_cannot_be_called_is_a_failure_that_says_why(client: A2aAgents, change: Change, said: str) -> None:
    """In one sentence, without a message sent; asking again does not help."""
    async with serving(behind_card(hello, change)) as server:
        failure = failed(await send(client, agent_at(server.port)))

    assert (failure.code, failure.recoverable, failure.unavailable) == (ErrorCode.CARD_INVALID, False, False)
    assert failure.detail.startswith("causal_impact ")
    assert said in failure.detail
    assert failure.may_have_run is False
    assert all(asks_for_card(request) for request in server.requests)


NO_JSON = {"empty": b"", "HTML": b"<html>", "not UTF-8": b'{"name": "\xff"}', "NaN": b'{"name": NaN}', "deep": b"[" * 100_000}


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
async def test_what_is_no_json_is_no_card(client: A2aAgents, body: bytes) -> None:
    """Whatever is served at the card's address."""
    async with serving(card_only(saying(http(body)))) as server:
        failure = failed(await send(client, agent_at(server.port)))

    assert failure.code is ErrorCode.CARD_INVALID


GOOD_CARDS: dict[str, Change] = {
    "with a patch number": interface(protocolVersion="1.0.7"),
    "with a patch that is no number": interface(protocolVersion="1.0.x!"),
    "with fields of the future": lambda card: {**card, "mood": "fine", "capabilities": {"telepathy": True}},
    "with an extension that is not required": lambda card: {**card, "capabilities": {"extensions": [{"uri": "urn:odd"}]}},
    "with other interfaces before ours": lambda card: {
        **card,
        "supportedInterfaces": [
            {"url": "grpc.example:443", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": "http://elsewhere.example/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {**card["supportedInterfaces"][0], "protocolVersion": "0.3"},
            *card["supportedInterfaces"],
        ],
    },
    "with security for whom wants it": secured([], ["k"], k=API_KEY),
    "with schemes that are not asked for": lambda card: {**card, "securitySchemes": {"k": API_KEY}},
    "with no more than an interface": lambda card: {"supportedInterfaces": card["supportedInterfaces"]},
}


@pytest.mark.parametrize("change", GOOD_CARDS.values(), ids=GOOD_CARDS)
async def test_a_card_that_offers_what_we_speak_is_enough(client: A2aAgents, change: Change) -> None:
    """The first interface that fits is used."""
    async with serving(behind_card(handing_off(), change)) as server:
        assert isinstance(await send(client, agent_at(server.port)), AgentHandoff)


@pytest.mark.parametrize(
    ("header", "value", "scheme", "enough"),
    [
        ("X-Api-Key", "k", API_KEY, True),
        ("x-api-key", "k", API_KEY, True),
        ("Authorization", "k", API_KEY, False),
        ("X-Api-Key", "k", QUERY_KEY, False),
        ("Authorization", "Bearer k", BEARER, True),
        ("Authorization", "bearer k", BEARER, True),
        ("Authorization", "Basic k", BEARER, False),
        ("Authorization", "Basic k", BASIC, True),
        ("Authorization", "Bearer k", OAUTH, True),
        ("Authorization", "Bearer k", OPEN_ID, True),
        ("X-Api-Key", "Bearer k", OAUTH, False),
        ("Authorization", "Bearer k", MTLS, False),
    ],
)
async def test_a_scheme_is_satisfied_by_our_one_header_or_not(header: str, value: str, scheme: dict[str, Any], enough: bool) -> None:
    """A key of another kind is not sent in the hope that it will do."""
    key = AgentKey(env="AGENT_KEY", header=header)
    client = A2aAgents([agent_at(1, auth=key)], environment={"AGENT_KEY": value})
    async with serving(behind_card(handing_off(), secured(["k"], k=scheme))) as server:
        answer = await send(client, agent_at(server.port, auth=key))
    await client.close()

    assert isinstance(answer, AgentHandoff if enough else AgentFailure)


async def test_a_certificate_of_our_own_satisfies_mutual_tls() -> None:
    """Whether it is the right one, the handshake says."""
    body = json.dumps(
        secured(["m"], m=MTLS)({"supportedInterfaces": [{"url": "https://a/x", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]})
    )
    with_certificate = agent_at(1, tls=AgentTls(certificate="ours.pem"))

    assert read_card(body.encode(), with_certificate, "https://a:443/base", {}).supported_interfaces[0].url == "https://a/x"
    with pytest.raises(CardInvalid, match="asks for the security m"):
        read_card(body.encode(), agent_at(1, tls=AgentTls(authority="theirs.pem")), "https://a:443/base", {})


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:{there}/x", "http://127.0.0.1:{here}@127.0.0.1:{there}/x", "http://localhost:{there}/x"]
)
async def test_no_card_leads_a_request_or_our_key_elsewhere(address: str) -> None:
    """The other server hears nothing."""
    key = AgentKey(env="AGENT_KEY")
    client = A2aAgents([agent_at(1, auth=key)], environment={"AGENT_KEY": "Bearer k"})
    async with serving(hello) as elsewhere:

        def change(card: dict[str, Any]) -> dict[str, Any]:
            return interface(url=address.format(here=server.port, there=elsewhere.port))(card)

        async with serving(behind_card(hello, change)) as server:
            failure = failed(await send(client, agent_at(server.port, auth=key)))
    await client.close()

    assert (failure.code, elsewhere.requests) == (ErrorCode.CARD_INVALID, [])


@pytest.mark.parametrize(
    ("answer", "code", "recoverable", "retry_after"),
    [
        (saying(http(b"", "503 Service Unavailable", Retry_After="9")), ErrorCode.AGENT_UNAVAILABLE, True, 9.0),
        (saying(http(b"", "404 Not Found")), ErrorCode.AGENT_UNAVAILABLE, False, None),
        (saying(http(b"", "401 Unauthorized")), ErrorCode.AGENT_ERROR, False, None),
        (saying(http(b"", "302 Found", Location="/card")), ErrorCode.AGENT_ERROR, False, None),
        (saying(b"HTTP/1.1 200 OK\r\nConte", close=True), ErrorCode.AGENT_UNAVAILABLE, True, None),
        (hanging, ErrorCode.AGENT_TIMEOUT, True, None),
    ],
    ids=["503", "404", "401", "302", "cut", "hangs"],
)
async def test_a_card_that_cannot_be_had_is_the_failure_of_the_agent(
    client: A2aAgents, answer: Answer, code: ErrorCode, recoverable: bool, retry_after: float | None
) -> None:
    """With the same meaning as for a dispatch; but no work was started by asking for a card."""
    async with serving(card_only(answer)) as server:
        started = time.monotonic()
        failure = failed(await send(client, agent_at(server.port), timeout=TIMEOUT))

    assert (failure.code, failure.recoverable, failure.retry_after, failure.may_have_run) == (code, recoverable, retry_after, False)
    assert time.monotonic() - started < TIMEOUT + 1.0


async def test_calls_at_once_fetch_the_card_once_and_later_calls_not_at_all(client: A2aAgents) -> None:
    """One request for the card, however many want it."""

    async def slow_card(server: Server, request: Request, writer: Writer) -> None:
        await asyncio.sleep(0.1)
        writer.write(http(json.dumps(card(server, request)).encode()))

    async with serving(card_only(slow_card)) as server:
        agent = agent_at(server.port)
        answers = [*await asyncio.gather(*(send(client, agent) for _ in range(20))), await send(client, agent)]

    assert {type(answer) for answer in answers} == {AgentHandoff}
    assert len([request for request in server.requests if asks_for_card(request)]) == 1


async def test_calls_at_once_share_a_failed_fetch_and_the_next_call_tries_again(client: A2aAgents) -> None:
    """An agent that is down is not asked for its card by everybody in turn; one that is up again is not held to have none."""

    async def late_503(server: Server, request: Request, writer: Writer) -> None:
        if len(server.requests) > 1:
            writer.write(http(json.dumps(card(server, request)).encode()))
        else:
            await asyncio.sleep(0.1)
            writer.write(http(b"", "503 Service Unavailable"))

    async with serving(card_only(late_503)) as server:
        agent = agent_at(server.port)
        first = await asyncio.gather(*(send(client, agent) for _ in range(10)))
        asked = len(server.requests)
        later = await send(client, agent)

    assert {failed(answer).code for answer in first} == {ErrorCode.AGENT_UNAVAILABLE}
    assert asked == 1
    assert isinstance(later, AgentHandoff)


async def test_who_waits_for_anothers_fetch_waits_no_longer_than_its_own_time(client: A2aAgents) -> None:
    """Each call has its own timeout, whoever fetches; and when the one that fetches leaves, another goes on."""

    async def slow_at_first(server: Server, request: Request, writer: Writer) -> None:
        if len(server.requests) == 1:
            await hanging(server, request, writer)
        writer.write(http(json.dumps(card(server, request)).encode()))

    async with serving(card_only(slow_at_first)) as server:
        agent = agent_at(server.port)
        fetching = asyncio.create_task(send(client, agent, timeout=0.4))
        await asyncio.sleep(0.05)
        patient = asyncio.create_task(send(client, agent, timeout=5.0))
        started = time.monotonic()
        hurried = failed(await send(client, agent, timeout=0.1))
        took = time.monotonic() - started

        assert (hurried.code, took < 0.35) == (ErrorCode.AGENT_TIMEOUT, True)
        assert failed(await fetching).code is ErrorCode.AGENT_TIMEOUT
        assert isinstance(await patient, AgentHandoff)


async def test_a_card_is_fetched_again_after_some_minutes() -> None:
    """And kept until then."""
    now, fetched = 100.0, 0
    cards = Cards(clock=lambda: now)

    async def fetch() -> AgentCard:
        nonlocal fetched
        fetched += 1
        return AgentCard(name=str(fetched))

    names = []
    for later in (0.0, KEPT_SECONDS - 1.0, KEPT_SECONDS + 1.0):
        now = 100.0 + later
        names.append((await cards.get("http://a", fetch, shared=())).name)

    assert names == ["1", "1", "2"]


async def test_an_address_of_the_card_that_is_gone_makes_the_card_old(client: A2aAgents) -> None:
    """The agent has moved: the next call asks where to."""

    async def moving(server: Server, request: Request, writer: Writer) -> None:
        if request.line.startswith("POST /old"):
            writer.write(http(b"", "404 Not Found"))
        else:
            await hello(server, request, writer)

    def change(card: dict[str, Any]) -> dict[str, Any]:
        path = "old" if len(server.requests) == 1 else "new"
        return interface(url=f"http://127.0.0.1:{server.port}/{path}")(card)

    async with serving(behind_card(moving, change)) as server:
        agent = agent_at(server.port)
        first, second = await send(client, agent), await send(client, agent)

    assert failed(first).code is ErrorCode.AGENT_UNAVAILABLE
    assert isinstance(second, AgentHandoff)


def test_the_documented_entry_can_be_loaded(tmp_path: Path) -> None:
    """An example that does not run teaches nothing."""
    page = (ROOT / "docs/own-agents.md").read_text(encoding="utf-8")
    (agents,) = re.findall(r"^```yml\n(.+?)^```$", page, re.MULTILINE | re.DOTALL)
    intents = re.findall(r"^```yaml\n(.+?)^```$", page, re.MULTILINE | re.DOTALL)[1]
    for file, written in (("agents.yaml", agents), ("intents.yaml", intents), ("entities.yaml", "terms: {}")):
        (tmp_path / file).write_text(written, encoding="utf-8")

    agent = load_catalog(tmp_path).agent["invoice_agent"]

    assert (agent.protocol, str(agent.urls[0])) == ("a2a", "https://agents.example/invoices")
