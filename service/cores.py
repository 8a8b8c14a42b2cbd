"""How many cores a program may use."""

import os
import re

VARIABLE = "OMP_NUM_THREADS"


def cores() -> int:
    """Return the first number of `OMP_NUM_THREADS`, where it is set (OpenMP 5.2, 21.1.2), or else the cores that this process may run on.

    Python does not see a container's CPU limit, only the node's cores, of which there may be thirty times as many. OpenBLAS reads the same
    variable.
    """
    told = re.match(r"\s*(\d+)", os.environ.get(VARIABLE, ""))
    if told is not None and int(told[1]) > 0:
        return int(told[1])
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
