"""How the service is served: what one process and several have in common, and several that share one port.

Several share the database and what they count for `/metrics`, and nothing else: breakers, budgets and slots are each process's own.
"""

import os
import tempfile
from typing import Any, TypedDict

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from service.connections import Connection
from service.errors import ConfigurationError
from service.listening import require_free_port
from service.logs import configure_logs
from service.metrics import SHARED
from service.settings import Settings

GRACE_SECONDS = 20  # less than the 30 s that Kubernetes waits
PATIENCE_SECONDS = 30  # for a sign of life of a worker process; a machine may be busy, and to kill the worker breaks all that it answers
KEEP_ALIVE_SECONDS = 75  # more than the 60 s of the usual proxies: whoever closes first must be the one who sends


class Watchers(Multiprocess):
    """Watches over the worker processes, and stops listening when they do: what nobody accepts must be refused at once, not reset later."""

    def terminate_all(self) -> None:
        """Let go of the port, and tell each process to end."""
        for one in self.sockets:
            one.close()
        super().terminate_all()

    def keep_subprocess_alive(self) -> None:
        """Look after each process. One that dies before it gives its sign of life must not be waited for, while nobody heeds SIGTERM."""
        for one in self.processes:
            one.child_conn.close()  # its own copy ends with it, and that is heard at once
        super().keep_subprocess_alive()


class _Serving(TypedDict):
    log_config: None
    access_log: bool
    server_header: bool
    timeout_graceful_shutdown: int
    timeout_keep_alive: int
    timeout_worker_healthcheck: int
    loop: Any
    http: Any


SERVING = _Serving(
    log_config=None,
    access_log=False,
    server_header=False,
    timeout_graceful_shutdown=GRACE_SECONDS,
    timeout_keep_alive=KEEP_ALIVE_SECONDS,
    timeout_worker_healthcheck=PATIENCE_SECONDS,
    loop="uvloop",
    http=Connection,
)


def serve_together(settings: Settings, workers: int) -> None:
    """Serve by several processes until Ctrl-C; one that dies is replaced.

    Raises:
        ConfigurationError: the port is taken, or a process cannot start.
    """
    configure_logs(settings.log_level)  # of the process that watches over the others
    require_free_port(settings.host, settings.port, "Set POINTSMAN_PORT to another port.")
    os.environ |= {"POINTSMAN_HOST": settings.host, "POINTSMAN_PORT": str(settings.port)}  # which the processes read their settings from
    with tempfile.TemporaryDirectory(prefix="pointsman-metrics-") as folder:
        os.environ[SHARED] = folder
        config = uvicorn.Config(
            "service.api.app:create_app", factory=True, host=settings.host, port=settings.port, workers=workers, **SERVING
        )
        watchers = Watchers(config, sockets=[config.bind_socket()])
        watchers.run()
    if any(process.exitcode == STARTUP_FAILURE for process in watchers.processes):
        raise ConfigurationError("A worker process could not start; why is said above.")
