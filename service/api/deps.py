"""What routes need, as `Annotated` aliases over the lifespan's state. All coroutines: FastAPI sends plain functions through a thread."""

from typing import Annotated, TypedDict, cast

import structlog
from fastapi import Depends, Request, Response
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from service.bootstrap import Services
from service.contracts.caller import OPTIMIZE, ROLL_BACK, Caller
from service.errors import PermissionDenied


class State(TypedDict):
    """The lifespan's state."""

    services: Services


async def _services(request: Request) -> Services:
    return cast(Services, request.state.services)


ServicesDep = Annotated[Services, Depends(_services)]


_bearer = HTTPBearer(scheme_name="bearer", description="An API key, or a bearer token of the OpenID provider.", auto_error=False)
_key = APIKeyHeader(name="X-API-Key", scheme_name="key", description="An API key.", auto_error=False)
BearerDep = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
KeyDep = Annotated[str | None, Depends(_key)]


async def _caller(request: Request, services: ServicesDep, response: Response, bearer: BearerDep, key: KeyDep) -> Caller:
    given = (bearer.credentials.strip() if bearer is not None else "") or (key or "").strip()
    credential = given and given.encode("latin-1").decode("utf-8", "replace")  # a digest is made of the UTF-8 bytes
    peer = request.client.host if request.client is not None else ""
    host, origin = (request.headers.get(name, "") for name in ("host", "origin"))
    caller = await services.door.identify(credential, peer=peer, host=host, origin=origin)
    structlog.contextvars.bind_contextvars(key_id=caller.key_id)
    left = await services.door.limits.pass_request(caller)
    if left is not None:
        response.headers["RateLimit-Policy"] = f'"minute";q={left.most};w=60'
        response.headers["RateLimit"] = f'"minute";r={left.remaining};t={left.seconds}'
    return caller


async def _request_id(request: Request) -> str:
    return cast(str, request.state.request_id)


CallerDep = Annotated[Caller, Depends(_caller)]


async def _asker(caller: CallerDep, services: ServicesDep) -> Caller:
    services.door.limits.pass_question(caller)
    return caller


AskerDep = Annotated[Caller, Depends(_asker)]


async def _optimizer(caller: CallerDep) -> Caller:
    if not caller.may(OPTIMIZE):
        raise PermissionDenied(f"This needs the permission {OPTIMIZE}, which the key does not name.")
    return caller


async def _operator(caller: CallerDep) -> Caller:
    if not caller.may(ROLL_BACK):
        raise PermissionDenied(f"This needs the permission {ROLL_BACK}, which the key does not name.")
    return caller


OptimizerDep = Annotated[Caller, Depends(_optimizer)]
OperatorDep = Annotated[Caller, Depends(_operator)]
RequestIdDep = Annotated[str, Depends(_request_id)]
