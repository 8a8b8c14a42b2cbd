"""`create_app(settings)`: the HTTP surface. Run with `uvicorn --factory` or `pointsman serve`."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from service.api import document, problems, routes
from service.api.deps import State
from service.api.middleware import GUARDS, JsonBodies, RequestId, Watched
from service.bootstrap import Services, open_services
from service.logs import configure_logs
from service.settings import Settings

DESCRIPTION = (
    "Posts a question to the agents that should answer it, merges what they bring, and learns from every decision. "
    "Errors are `application/problem+json` (RFC 9457)."
)

Opener = Callable[[Settings], AbstractAsyncContextManager[Services]]


def create_app(settings: Settings | None = None, *, opener: Opener = open_services) -> FastAPI:
    """Make the app. `opener` opens what the settings ask for; tests pass one that opens fakes."""
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        configure_logs(chosen.log_level)
        async with opener(chosen) as services:
            yield {"services": services}

    app = FastAPIOffline(  # its pages need no network beyond this service
        title="Pointsman",
        version=version("pointsman"),
        description=DESCRIPTION,
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would be built from the caller's Host header
    )
    problems.install(app, {name.decode(): value.decode() for name, value in GUARDS})
    app.include_router(routes.router)
    document.install(app, routes.router)
    app.add_middleware(JsonBodies, max_bytes=chosen.max_body_bytes)
    app.add_middleware(RequestId)
    app.add_middleware(Watched)
    return app
