"""Measure the LM rung of a running service: `python -m tests.bench.lm_rung [URL]` forces it for 50 golden queries, in the real budget.

Prints which rung answered, how often the intent was right, and the latency. The golden set is not trained on.
"""

import json
import sys
import time
from collections import Counter

import httpx

from tests.conftest import ROOT, body


def main(url: str) -> None:
    """Ask and print."""
    rows = [json.loads(line) for line in (ROOT / "datasets/golden/test.jsonl").read_text().splitlines()]
    asked = [row for row in rows if row["label"] != "oos"][::6]
    rungs: Counter[str] = Counter()
    seconds, right = [], 0
    for row in asked:
        started = time.perf_counter()
        decision = httpx.post(f"{url}/route", json=body(row["text"]) | {"preferences": {"rung": "lm"}}, timeout=60.0).json()
        seconds.append(time.perf_counter() - started)
        rungs[decision["rung"]] += 1
        right += decision["intent"] == row["label"]
    seconds.sort()
    p50, p95 = seconds[len(seconds) // 2], seconds[int(len(seconds) * 0.95)]
    print(f"{len(asked)} requests, rungs {dict(rungs)}, intent right {right}, p50 {p50:.2f} s, p95 {p95:.2f} s, max {seconds[-1]:.2f} s")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8100")
