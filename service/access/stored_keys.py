"""The keys of the database as they were last read: no request waits for the database to be let in.

They are read again every few seconds, so that what was revoked opens nothing any more, and at once where an unknown one is sent. What was
read is noted on this machine's disk: a service that starts while the database is away knows its callers.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from service.contracts.access import ApiKey
from service.contracts.model import Contract
from service.errors import PointsmanError, StoreUnavailable

log = logging.getLogger(__name__)
REFRESH_SECONDS = 3.0
SOONEST_SECONDS = 1.0  # between two readings for the sake of unknown keys: whoever sends many must not have the database read as often
UNREAD = "The API keys cannot be read: the database has not answered since the service started, and there is no note of them."

Load = Callable[[], Awaitable[Mapping[str, ApiKey]]]


class Note(Contract):
    """What was read last. `of` tells of which database."""

    of: str
    keys: dict[str, ApiKey]


class StoredKeys:
    """Finds a key by its digest.

    Args:
        load: reads all keys by their digests, or raises `PointsmanError`.
        note: the file where they are noted.
        address: of the database, without its password.
    """

    def __init__(self, load: Load, note: Path, address: str) -> None:
        self._load, self._note, self._of = load, note, sha256(address.encode()).hexdigest()
        self._known: Mapping[str, ApiKey] | None = None
        self._read_at = -SOONEST_SECONDS
        self._reading: asyncio.Lock = asyncio.Lock()

    @property
    def known(self) -> bool:
        """Whether they have been read, or were noted."""
        return self._known is not None

    @property
    def in_use(self) -> bool:
        """Whether there are keys, also revoked ones; a service that had some never opens to everybody again.

        Raises:
            StoreUnavailable: nobody knows yet.
        """
        return bool(self._require_known())

    async def open(self) -> None:
        """Read the keys, or else the note of them."""
        if not await self._refresh():
            self._known = await asyncio.to_thread(self._read_note)

    async def follow(self) -> None:
        """Read the keys every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            await self._refresh()

    async def find(self, digest: str) -> ApiKey | None:
        """Return the key of a digest, whether or not it is of use, or None.

        Raises:
            StoreUnavailable: nobody knows yet.
        """
        if digest not in (self._known or ()):
            async with self._reading:
                if time.monotonic() - self._read_at > SOONEST_SECONDS:
                    await self._refresh()
        return self._require_known().get(digest)

    def _require_known(self) -> Mapping[str, ApiKey]:
        if self._known is None:
            raise StoreUnavailable(UNREAD)
        return self._known

    async def _refresh(self) -> bool:
        try:
            keys = await self._load()
        except PointsmanError as exc:
            log.info("keys_not_read: %s", exc)
            return False
        finally:
            self._read_at = time.monotonic()
        if keys != self._known:
            self._known = keys
            await asyncio.to_thread(self._write_note, keys)
        return True

    def _read_note(self) -> Mapping[str, ApiKey] | None:
        try:
            note = Note.model_validate_json(self._note.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as exc:
            log.warning("keys_note_not_read file=%s: %s", self._note, type(exc).__name__)
            return None
        return note.keys if note.of == self._of else None

    def _write_note(self, keys: Mapping[str, ApiKey]) -> None:
        part = self._note.with_name(f".{self._note.name}.{os.getpid()}.part")
        try:
            self._note.parent.mkdir(parents=True, exist_ok=True)
            part.touch(mode=0o600)
            part.write_text(Note(of=self._of, keys=dict(keys)).model_dump_json())
            part.replace(self._note)
        except OSError as exc:
            log.warning("keys_not_noted file=%s: %s", self._note, exc.strerror)
