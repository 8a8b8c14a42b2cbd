"""How the service is served: what one process and several have in common, and several that share one port.

Several share the database and what they count for `/metrics`, and nothing else: breakers, budgets and slots are each process's own.
"""

import logging
import os
import tempfile
import time
from socket import socket
from typing import Any, TypedDict

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from service.connections import Connection
from service.errors import ConfigurationError
from service.listening import require_free_port
from service.logs import configure_logs
from service.metrics import SHARED
from service.settings import Settings

log = logging.getLogger(__name__)
LONGEST_WORK_SECONDS = 900  # of an agent (model_trainer); what it is at when it is told to end is finished
PATIENCE_SECONDS = 30  # for a sign of life of a worker process; a machine may be busy, and to kill the worker breaks all that it answers
RETRY_SECONDS = 10.0  # between two tries to start a worker process that could not
KEEP_ALIVE_SECONDS = 75  # more than the 60 s of the usual proxies: whoever closes first must be the one who sends


class Watchers(Multiprocess):
    """Watches over the worker processes, and stops listening when they do: what nobody accepts must be refused at once, not reset later.

    Attributes:
        cannot_start: whether all ended because no process could start.
    """

    cannot_start = False

    def __init__(self, config: uvicorn.Config, sockets: list[socket]) -> None:
        super().__init__(config, sockets)
        self._ended = set[Process]()  # those that wait to be replaced
        self._next_try = 0.0

    def terminate_all(self) -> None:
        """Let go of the port, and tell each process to end."""
        for one in self.sockets:
            one.close()
        super().terminate_all()

    def keep_subprocess_alive(self) -> None:
        """Replace each process that has died or hangs. Unlike uvicorn's, a new one that cannot start does not end those that serve.

        It is tried again: what keeps it from starting, such as a newer schema or a full disk, may not harm the others, and may pass.
        """
        for place, one in enumerate(self.processes):
            if self.should_exit.is_set() or self.signal_queue:
                return  # nobody is to be replaced any more
            one.child_conn.close()  # its own copy ends with it, which is heard at once: nobody heeds SIGTERM while it is waited for
            if one.is_alive(PATIENCE_SECONDS):
                continue
            if one not in self._ended:
                one.kill()
                one.join()
                self._ended.add(one)
            if one.exitcode == STARTUP_FAILURE:
                if not any(other.is_ready(PATIENCE_SECONDS) for other in self.processes if other is not one):
                    self.cannot_start = True
                    self.should_exit.set()
                    return
                if time.monotonic() < self._next_try:
                    continue
                self._next_try = time.monotonic() + RETRY_SECONDS
                log.error("worker_cannot_start: the others go on, and it is tried again; why is said above")
            self._ended.discard(one)
            self.processes[place] = Process(self.config, self.sockets)
            self.processes[place].start()


class _Serving(TypedDict):
    log_config: None
    access_log: bool
    server_header: bool
    timeout_graceful_shutdown: int
    timeout_keep_alive: int
    timeout_worker_healthcheck: int
    loop: Any
    http: Any


def serving(grace_seconds: int) -> _Serving:
    """Return how all programs are served. `grace_seconds`: for what is under way when one is told to end."""
    return _Serving(
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=grace_seconds,
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
            "service.api.app:create_app",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=workers,
            **serving(settings.grace_seconds),
        )
        watchers = Watchers(config, sockets=[config.bind_socket()])
        watchers.run()
    if watchers.cannot_start:
        raise ConfigurationError("A worker process could not start; why is said above.")
