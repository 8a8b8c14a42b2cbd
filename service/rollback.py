"""Going back to the champion before, from inside the service: another process does it, since the registry's client is slow to import."""

import asyncio
import os
import sys
from contextlib import suppress

from service.adapters.registry_rollback import NOTHING, REGISTRY
from service.contracts.surface import RolledBack
from service.errors import NothingToRollBack, RegistryUnavailable

SECONDS = 60.0


class Rollback:
    """Rolls the registry at an address back, one call at a time: two at once would go back and forth."""

    def __init__(self, mlflow_uri: str) -> None:
        self._uri = mlflow_uri
        self._one = asyncio.Lock()

    async def __call__(self) -> RolledBack:
        """Go back; the services follow within seconds.

        Raises:
            NothingToRollBack: there is no earlier champion, or another call is going back already.
            RegistryUnavailable: the registry cannot be used, or did not answer in time.
        """
        if self._one.locked():
            raise NothingToRollBack("Another request is going back at this moment. See where it led: GET /readyz")
        async with self._one:
            command, pipe = (sys.executable, "-m", "service.adapters.registry_rollback"), asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=os.environ | {REGISTRY: self._uri})
            try:
                async with asyncio.timeout(SECONDS):
                    said, complained = await process.communicate()
            except TimeoutError as exc:
                raise RegistryUnavailable(f"The registry did not answer within {SECONDS:.0f} s. Whether it went back: GET /readyz") from exc
            finally:
                with suppress(ProcessLookupError):
                    if process.returncode is None:
                        process.kill()
        if process.returncode == 0:
            return RolledBack.model_validate_json(said.splitlines()[-1])
        why = (complained.decode(errors="replace").strip().splitlines() or ["It ended without a word."])[-1]
        raise (NothingToRollBack if process.returncode == NOTHING else RegistryUnavailable)(why)
