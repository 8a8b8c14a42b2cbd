"""What routes need, as `Annotated` aliases over the lifespan's state. All coroutines: FastAPI sends plain functions through a thread."""

import ipaddress
from typing import Annotated, TypedDict, cast

from fastapi import Depends, Request

from service.bootstrap import Services
from service.contracts.caller import OPTIMIZE, ROLL_BACK, Caller
from service.errors import PermissionDenied, Unauthenticated


class State(TypedDict):
    """The lifespan's state."""

    services: Services


async def _services(request: Request) -> Services:
    return cast(Services, request.state.services)


ServicesDep = Annotated[Services, Depends(_services)]


async def _caller(request: Request, services: ServicesDep) -> Caller:
    if not services.keys.callers and request.client is not None and not _is_loopback(request.client.host):
        raise Unauthenticated("Without POINTSMAN_API_KEYS this service answers on loopback only.")
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else None
    key = bearer or request.headers.get("x-api-key")
    return services.keys.identify(key and key.encode("latin-1").decode("utf-8", "replace"))  # a digest is made of the UTF-8 bytes


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _request_id(request: Request) -> str:
    return cast(str, request.state.request_id)


CallerDep = Annotated[Caller, Depends(_caller)]


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
