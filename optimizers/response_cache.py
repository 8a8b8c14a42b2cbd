"""Keeps an LM's answers on disk while a search runs, so that one that was interrupted comes back to where it was without asking again.

DSPy's own disk cache holds pickles and takes two servers of one model for the same; here an answer is JSON, in a folder of its LM's own.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import diskcache
import dspy
from dspy.clients.cache import Cache

MOST_BYTES = 2 * 1024**3  # the oldest answers leave


def identify(*parts: str) -> str:
    """Return a name of a folder for answers that no other LM would give."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@contextmanager
def answers_kept(folder: Path) -> Iterator[None]:
    """Let DSPy's cache be this folder. The cache is global, so there can be one at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    cache = Cache(enable_disk_cache=False, enable_memory_cache=False, disk_cache_dir=None)
    with diskcache.Cache(str(folder), disk=diskcache.JSONDisk, size_limit=MOST_BYTES) as store:
        cache.disk_cache, cache.enable_disk_cache = store, True
        before, dspy.cache = dspy.cache, cache
        try:
            yield
        finally:
            dspy.cache = before


@contextmanager
def no_answers_kept() -> Iterator[None]:
    """Let DSPy cache nothing."""
    before = dspy.cache
    dspy.cache = Cache(enable_disk_cache=False, enable_memory_cache=False, disk_cache_dir=None)
    try:
        yield
    finally:
        dspy.cache = before
