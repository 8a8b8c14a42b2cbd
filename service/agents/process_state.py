"""How long this process runs and how much of its memory it uses, from the operating system alone. None means: cannot be told here."""

import contextlib
import os
from pathlib import Path


def uptime_seconds() -> float | None:
    """Return the seconds since the process started, from /proc; None on systems without it."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        since_boot = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return None
    return max(0.0, since_boot - int(fields[19]) / os.sysconf("SC_CLK_TCK"))


def resident_bytes() -> int | None:
    """Return the resident memory of the process, from /proc; None on systems without it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_limit_bytes() -> int | None:
    """Return the smaller of the container's limit (cgroup 2 or 1) and the machine's memory."""
    limits = []
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text(encoding="ascii")))
        except (OSError, ValueError):  # absent, or the word "max"
            continue
    with contextlib.suppress(OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits) if limits else None
