"""What a program uses, with all its children, as Linux tells it: resident memory, descriptors, threads."""

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Usage:
    """What a family of processes uses at one moment; pages that several share are counted in each."""

    processes: int
    resident: int  # bytes
    held: Counter[str]  # descriptors, by the name of the file that they lead to, or by their kind
    threads: int

    @property
    def descriptors(self) -> int:
        """How many there are."""
        return self.held.total()

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.resident / MIB:.1f} MiB, {self.descriptors} descriptors, {self.threads} threads, {self.processes} processes"


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [pid]
    for one in found:
        with suppress(OSError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def usage(pid: int) -> Usage:
    """Return what a process and its descendants use now."""
    resident = threads = processes = 0
    held = Counter[str]()
    for one in family(pid):
        place = Path(f"/proc/{one}")
        with suppress(OSError):  # it has just ended
            pages = int((place / "statm").read_text().split()[1])
            threads += len(os.listdir(place / "task"))
            for descriptor in (place / "fd").iterdir():
                with suppress(OSError):  # it was just closed
                    held[Path(os.readlink(descriptor)).name.partition(":")[0]] += 1
            resident, processes = resident + pages * PAGE, processes + 1
    return Usage(processes, resident, held, threads)


def left_open(before: Usage, after: Usage, most: int) -> list[str]:
    """Say which descriptors became more, where those are more than so many."""
    if after.descriptors <= before.descriptors + most:
        return []
    return [f"descriptors became more: {before.descriptors}, then {after.descriptors}: {dict(after.held - before.held)} more"]
