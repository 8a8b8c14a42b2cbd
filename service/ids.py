"""Ids that sort by the time at which they were made (RFC 9562, version 7): a large store appends to its indexes instead of scattering."""

from uuid import UUID

import fastuuid


def new_id() -> UUID:
    """Return a new id."""
    return UUID(bytes=fastuuid.uuid7().bytes)
