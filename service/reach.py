"""Whether somebody answers at the addresses of the agents: for the start's log and for `pointsman doctor`."""

import asyncio

import httpx

from service.catalog.model import Catalog

REACH_SECONDS = 2.0


async def ask_addresses(catalog: Catalog) -> tuple[int, list[str]]:
    """Ask each address at which agents listen, all at once; return how many there are, and those where nobody answers in time.

    Any answer is one: what is asked for need not be there.
    """
    origins = sorted({f"{url.scheme}://{url.host}:{url.port}" for agent in catalog.agents for url in agent.urls})
    limits = httpx.Limits(max_connections=None)  # to wait for one another would count as silence
    async with httpx.AsyncClient(timeout=REACH_SECONDS, trust_env=False, limits=limits) as client:

        async def answers(origin: str) -> bool:
            try:
                await client.get(origin)
            except httpx.TransportError:
                return False
            return True

        found = await asyncio.gather(*map(answers, origins))
    return len(origins), [origin for origin, answered in zip(origins, found, strict=True) if not answered]
