"""Agents that answer at once, with a plain success each: `python -m tests.bench.echo_agents PORT`."""

import asyncio
import sys

from service.agents.faults.server import FaultServer


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    async with FaultServer(port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
