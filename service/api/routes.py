"""The routes. Each takes what it needs, calls one thing and returns a contract; everything else is behind `Services`."""

import asyncio
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Request, Response
from fastapi.responses import JSONResponse

from service.api import examples, problems
from service.api.deps import AskerDep, CallerDep, OperatorDep, OptimizerDep, RequestIdDep, ServicesDep
from service.api.stream import open_stream
from service.contracts.decision import RouteDecision
from service.contracts.optimization import OptimizationRequest, OptimizationWish, RequestStatus
from service.contracts.output import OrchestratorOutput
from service.contracts.query import OrchestratorInput
from service.contracts.receipt import Receipt
from service.contracts.signals import FEEDBACK_FIELDS, Feedback
from service.contracts.surface import AgentListing, FeedbackReceipt, Health, IntentListing, Readiness, RolledBack
from service.errors import FieldProblem, InvalidInput, NotFound, PointsmanError
from service.ports import FeedbackTaken
from service.stages.hub import OrchestratorDSPyHub

READY_SECONDS = 2.0
UNKNOWN_AGENT = FieldProblem("corrected_agent", "must be an agent of GET /agents", "unknown_agent")
router = APIRouter()

Question = Annotated[OrchestratorInput, Body(openapi_examples=examples.QUESTIONS)]


def _ok(example: Any) -> dict[int | str, dict[str, Any]]:  # noqa: ANN401  (any JSON)
    return {200: {"content": {"application/json": {"example": example}}}}


def _accepted(example: Any) -> dict[int | str, dict[str, Any]]:  # noqa: ANN401  (any JSON)
    location = {"Location": {"description": "Where to look at it.", "schema": {"type": "string"}}}
    return {202: {"description": "Kept; a job will carry it out.", "headers": location, **_ok(example)[200]}}


def _leads_to(answer: dict[int | str, dict[str, Any]], **links: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """Add to an answer's description what can be asked next with what it holds (OpenAPI links)."""
    return {status: {**said, "links": links} for status, said in answer.items()}


_RECEIPT = {"operationId": "decision_decisions__decision_id__get", "parameters": {"decision_id": "$response.body#/decision_id"}}
_RATED = {"decision_id": "$response.body#/decision_id", "user_satisfaction": 5}
_FEEDBACK = {"operationId": "feedback_feedback_post", "requestBody": _RATED}
_AGAIN = {"operationId": "orchestrate_orchestrate_post", "requestBody": "$request.body"}
_WISH = {"operationId": "optimization_optimizations__request_id__get", "parameters": {"request_id": "$response.body#/request_id"}}


@router.post(
    "/orchestrate",
    summary="Answer a question through the agents",
    responses=problems.POSTED | _leads_to(_ok(examples.OUTPUT), receipt=_RECEIPT, feedback=_FEEDBACK, again=_AGAIN),
    tags=["turns"],
)
async def orchestrate(
    question: Question, services: ServicesDep, caller: AskerDep, request_id: RequestIdDep, response: Response
) -> OrchestratorOutput:
    """Answer a question through the agents. The same `query_id` again returns the stored answer."""
    answered = await services.pipeline.run(question, caller, request_id)
    if answered.replayed:
        response.headers["Idempotent-Replayed"] = "true"
    return answered.receipt.output


@router.post(
    "/orchestrate/stream",
    summary="Answer a question and tell how it goes",
    response_class=Response,
    responses=problems.POSTED | {200: {"content": {"text/event-stream": {"example": examples.STREAM}}}},
    tags=["turns"],
)
async def orchestrate_stream(
    question: Question, services: ServicesDep, caller: AskerDep, request_id: RequestIdDep, request: Request
) -> Response:
    """Answer a question as server-sent events: `decision`, `agent_start`, `agent_end`, `partial`, and at the end `output` or `problem`.

    What goes wrong before the first event is an ordinary problem, unless 15 s have passed: then the stream has begun, and ends with it.
    A client that leaves cancels the work; what had come by then is stored under the `query_id`.
    """
    return await open_stream(lambda tell: services.pipeline.run(question, caller, request_id, tell), request.url.path, request_id)


@router.post(
    "/route", summary="Decide without asking an agent", responses=problems.POSTED_DECISION | _ok(examples.DECISION), tags=["turns"]
)
async def route(question: Question, services: ServicesDep, _: AskerDep) -> RouteDecision:
    """Decide which agents should handle a question, without asking them. Nothing is stored."""
    return await services.pipeline.decide(question)


@router.post(
    "/feedback",
    summary="Say how an answer was",
    responses=problems.POSTED_FEEDBACK | _leads_to(_ok(examples.FEEDBACK_RECEIPT), receipt=_RECEIPT),
    tags=["learning"],
)
async def feedback(
    said: Annotated[Feedback, Body(openapi_examples=examples.FEEDBACK)], services: ServicesDep, caller: CallerDep
) -> FeedbackReceipt:
    """Say how an answer was: satisfaction, quality, rerouting, or the agent that it should have gone to."""
    if said.corrected_agent is not None and said.corrected_agent not in services.catalog.agent:
        raise InvalidInput("corrected_agent names no agent of the catalogue.", [UNKNOWN_AGENT])
    receipt = await services.store.add_feedback(caller.tenant, said)
    if receipt is None:
        raise NotFound(f"There is no decision {said.decision_id or said.query_id} of this tenant.")
    kinds = said.model_dump(include=set(FEEDBACK_FIELDS), exclude_none=True)
    services.metrics.notice(FeedbackTaken(tuple(kinds)))
    return FeedbackReceipt(decision_id=receipt.decision_id, signal_id=receipt.signal.signal_id, reward=receipt.reward)


@router.get("/decisions/{decision_id}", summary="Explain a decision", responses=problems.FETCHED | _ok(examples.RECEIPT), tags=["learning"])
async def decision(decision_id: UUID, services: ServicesDep, caller: CallerDep) -> Receipt:
    """Return the receipt of a decision, from which it can be explained and made again."""
    receipt = await services.store.by_decision(caller.tenant, decision_id)
    if receipt is None:
        raise NotFound(f"There is no decision {decision_id} of this tenant.")
    return receipt


@router.post(
    "/optimizations",
    summary="Ask for a better router",
    status_code=202,
    responses=problems.POSTED_OPTIMIZATION | _leads_to(_accepted(examples.OPTIMIZATION), request=_WISH),
    tags=["learning"],
)
async def ask_for_optimization(
    wish: Annotated[OptimizationWish, Body(openapi_examples=examples.WISHES)],
    services: ServicesDep,
    caller: OptimizerDep,
    response: Response,
) -> OptimizationRequest:
    """Ask for a better version of a signature; the job `optimize --pending` carries it out. An equal wish joins the request that waits."""
    hub = OrchestratorDSPyHub(queue=services.optimizations, catalog=services.catalog, tenant=caller.tenant)
    accepted = await hub.accept(wish)
    response.headers["Location"] = f"/optimizations/{accepted.request_id}"
    return accepted


@router.get(
    "/optimizations",
    summary="List what was asked for",
    responses=problems.LISTED_OPTIMIZATIONS | _ok([examples.OPTIMIZATION]),
    tags=["learning"],
)
async def optimizations(services: ServicesDep, caller: OptimizerDep, status: RequestStatus | None = None) -> list[OptimizationRequest]:
    """List the first hundred: what has not ended in the order of its turn, then what ended last."""
    return list(await services.optimizations.requests(caller.tenant, status))


@router.get(
    "/optimizations/{request_id}",
    summary="Say what became of a request",
    responses=problems.FETCHED_OPTIMIZATION | _ok(examples.OPTIMIZATION_DONE),
    tags=["learning"],
)
async def optimization(request_id: UUID, services: ServicesDep, caller: OptimizerDep) -> OptimizationRequest:
    """Return where a request stands, and what the court made of the version that came of it."""
    found = await services.optimizations.request(caller.tenant, request_id)
    if found is None:
        raise NotFound(f"There is no optimization {request_id} of this tenant.")
    return found


@router.post(
    "/routers/rollback",
    summary="Go back to the champion before",
    responses=problems.POSTED_ROLLBACK | _ok(examples.ROLLED_BACK),
    tags=["operations"],
)
async def roll_back(services: ServicesDep, _: OperatorDep) -> RolledBack:
    """Make the champion before this one champion again. Every service follows within ten seconds; it says nothing of what was learned."""
    return await services.roll_back()


@router.get("/agents", summary="List the agents", responses=problems.LISTED | _ok([examples.AGENT]), tags=["catalogue"])
async def agents(services: ServicesDep, _: CallerDep) -> list[AgentListing]:
    """List the agents of the catalogue, and whether each may be called now."""
    return services.list_agents()


@router.get("/intents", summary="List the intents", responses=problems.LISTED | _ok([examples.INTENT]), tags=["catalogue"])
async def intents(services: ServicesDep, _: CallerDep) -> list[IntentListing]:
    """List the intents of the catalogue, and who serves each."""
    return services.list_intents()


@router.get("/healthz", summary="Is the process alive?", responses=_ok({"status": "ok"}), tags=["operations"])
async def healthz() -> Health:
    """Say that the process is alive."""
    return Health()


@router.get(
    "/readyz",
    summary="Can it answer as configured?",
    response_model=Readiness,
    responses=_ok(examples.READINESS) | examples.NOT_READY,
    tags=["operations"],
)
async def readyz(services: ServicesDep) -> Response:
    """Say whether the service can answer as configured, and which rungs of the cascade are in use."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            said = await services.store.ping()
            services.door.require_known()
            readiness = services.readiness("ok", said)
    except (PointsmanError, TimeoutError) as exc:
        readiness = services.readiness(str(exc) or "does not answer")
    return JSONResponse(readiness.model_dump(mode="json"), 200 if readiness.ready else 503)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"example": examples.METRICS}}}},
    tags=["operations"],
)
async def metrics(services: ServicesDep, request: Request) -> Response:
    """Return the metrics of all worker processes: as OpenMetrics where that is accepted, with exemplars, or as Prometheus' text."""
    content, media_type = services.metrics.expose(request.headers.get("accept", ""))
    return Response(content, media_type=media_type)
