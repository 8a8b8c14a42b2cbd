"""What routes need, as `Annotated` aliases over the lifespan's state."""

from typing import Annotated, TypedDict, cast

from fastapi import Depends, Request

from service.bootstrap import Services
from service.contracts.caller import Caller


class State(TypedDict):
    """The lifespan's state."""

    services: Services


def _services(request: Request) -> Services:
    return cast(Services, request.state.services)


ServicesDep = Annotated[Services, Depends(_services)]


def _caller(request: Request, services: ServicesDep) -> Caller:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else None
    key = bearer or request.headers.get("x-api-key")
    return services.keys.identify(key and key.encode("latin-1").decode("utf-8", "replace"))  # a digest is made of the UTF-8 bytes


def _request_id(request: Request) -> str:
    return cast(str, request.state.request_id)


CallerDep = Annotated[Caller, Depends(_caller)]
RequestIdDep = Annotated[str, Depends(_request_id)]
