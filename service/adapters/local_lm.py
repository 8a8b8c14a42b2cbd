"""The local language model: llama.cpp in a process of its own, on a free loopback port, for as long as its owner lives.

Run as a program (`python -m service.adapters.local_lm --gguf FILE`) it is the child: it loads the file, prints one line of JSON with its
address and a key, serves the OpenAI chat protocol, and ends when its standard input closes, which also happens when the owner is killed.
A process of its own because loading and computing hold the interpreter, and because a crash in native code must not take the service along.
"""

import argparse
import asyncio
import json
import os
import secrets
import select
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.cores import cores
from service.errors import ConfigurationError

PROVIDER = "local"
SLOTS = 2
SLOT_TOKENS = 4_096
BATCH_TOKENS = 64  # the server notices that a caller has left after each batch, so small ones leave less useless work behind
START_SECONDS = 60.0
STOP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class LMEndpoint:
    """Where an LM is: a LiteLLM model string, and an address and a key where they are not the provider's own."""

    model: str
    api_base: str | None = None
    api_key: str | None = field(default=None, repr=False)


def spare_cores() -> int:
    """Return how many threads the model gets: all cores but one, at least one.

    llama.cpp's threads wait for each other at every layer. One core too few slows all of them: on two busy cores, two threads made 3 tokens
    a second where one thread made 70.
    """
    return max(1, cores() - 1)


class LocalLM:
    """Starts and stops the child. Use `start()` once; it is bound to no event loop, so an optimizer may call it from `asyncio.run`."""

    def __init__(self, gguf: Path, *, threads: int | None = None, port: int = 0) -> None:
        self._gguf, self._threads, self._port = gguf, threads, port
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, *, timeout: float = START_SECONDS) -> LMEndpoint:
        """Start the child and return its endpoint when it answers.

        Raises:
            ConfigurationError: the file is missing or cannot be loaded, or loading took longer than `timeout` seconds.
        """
        if not self._gguf.is_file():
            raise ConfigurationError(f"There is no language model at {self._gguf}. Run `make lm` to fetch the default one.")
        threads = spare_cores() if self._threads is None else self._threads
        arguments = ["--gguf", str(self._gguf.resolve()), "--threads", str(threads), "--port", str(self._port)]
        command = [sys.executable, "-m", "service.adapters.local_lm", *arguments]
        pipe, root = subprocess.PIPE, Path(__file__).parents[2]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=root)
        try:
            line = await asyncio.to_thread(_first_line, self._process, timeout)
        except BaseException:
            await self.close()
            raise
        if line:
            ready = json.loads(line)
            _bypass_proxies(ready["host"])
            return LMEndpoint(f"{PROVIDER}/{self._gguf.stem}", ready["address"], ready["key"])
        await self.close()
        if line is None:
            raise ConfigurationError(f"The language model {self._gguf} did not start within {timeout:.0f} s.")
        raise ConfigurationError(f"{self._gguf} cannot be loaded as a GGUF language model. Run `make lm` to fetch it again.")

    @property
    def running(self) -> bool:
        """Say whether the child lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The child's process id, or None before the start."""
        return None if self._process is None else self._process.pid

    async def close(self) -> None:
        """Stop the child; returns when it is gone. May be called twice."""
        if self._process is not None:
            await asyncio.to_thread(_stop, self._process)


def _first_line(process: "subprocess.Popen[bytes]", timeout: float) -> bytes | None:
    """Return what the child says first, nothing when it ended, or None when it said nothing in time."""
    if process.stdout is None:
        return b""
    readable, _, _ = select.select([process.stdout], [], [], timeout)
    return process.stdout.readline() if readable else None


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _bypass_proxies(host: str) -> None:
    """Keep loopback calls off a proxy that the environment names: the LM client has no switch of its own for that."""
    for name in ("no_proxy", "NO_PROXY"):
        listed = os.environ.get(name, "")
        if host not in listed.split(","):
            os.environ[name] = f"{listed},{host}".lstrip(",")


def register_provider(api_base: str) -> None:
    """Declare the local server to DSPy, so that answers are constrained to a schema; needed before a `dspy.LM` for it is made."""
    from dataclasses import replace

    from dspy import lm15
    from dspy._vendor.lm15.access import VLLM  # the plain OpenAI-compatible policy; lm15 exports no other way to build one

    definition = lm15.ProviderDefinition.chat(
        replace(VLLM, provider=PROVIDER, base_url=api_base),
        compat=lm15.OpenAIChatCompat(max_tokens_field="max_tokens"),
        placeholder_key="none",
    )
    supports = lm15.ModelSupport(response_schema=True, function_calling=False)
    lm15.register_provider(definition, supports=supports, replace=True)


def _serve(gguf: str, threads: int, port: int) -> object:
    from xllamacpp import CommonParams, Server

    key = secrets.token_urlsafe(24)  # other users of the machine can reach loopback too
    params: Any = CommonParams()
    params.model.path = gguf
    params.n_parallel, params.n_ctx = SLOTS, SLOTS * SLOT_TOKENS
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.port, params.api_keys = port, [key]
    params.use_jinja = params.cache_prompt = True
    params.cache_ram_mib = 256
    params.ui = params.endpoint_slots = params.fit_params = False
    params.verbosity = 0
    server = Server(params)
    address = server.listening_address
    host = address.removeprefix("http://").rsplit(":", 1)[0]
    print(json.dumps({"address": f"{address}/v1", "host": host, "key": key}), flush=True)  # noqa: T201  # the owner reads this line
    return server


def _end_with_owner() -> None:
    owner = os.getppid()
    while os.getppid() == owner:
        readable, _, _ = select.select([sys.stdin], [], [], 1.0)
        if readable and not os.read(sys.stdin.fileno(), 1024):
            break
    os._exit(0)


def main() -> None:
    """Serve one GGUF file until standard input closes."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--threads", type=int, default=spare_cores())
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    watcher = threading.Thread(target=_end_with_owner, daemon=True)
    watcher.start()
    server = _serve(options.gguf, options.threads, options.port)
    watcher.join()
    del server  # it serves until it is collected


if __name__ == "__main__":
    main()
