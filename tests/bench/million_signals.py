"""A million signals in the store: what a dataset of them costs, and whether commits notice: `python -m tests.bench.million_signals`.

Fills a SQLite store with receipts of the size that the service writes, builds and writes the dataset in a process of its own, and commits
receipts to the full store and to an empty one in turn.
"""

import argparse
import asyncio
import json
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np

from optimizers.dataset import read_rows
from optimizers.observations import COLUMNS, observe
from optimizers.scrub import Scrubber
from optimizers.snapshot import build_snapshot
from service.adapters.signal_log import SignalLog
from service.adapters.sql_store import SqlStore
from service.adapters.sql_tables import decision_values, signal_values
from service.terminal import terminal
from tests.bench.systems import ROOT
from tests.contract.test_store import a_receipt

BATCH = 10_000
PADDING = 4_500  # bytes that a receipt of the service has beyond the one used here
SECONDS, GIBIBYTES = 120.0, 2.0
console = terminal()


def main() -> None:
    """Read the arguments, fill, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--signals", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=200, help="of each turn")
    parser.add_argument("--build", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.build is not None:
        _build(given.build)
        return
    (ROOT / "var").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as folder:
        full, empty = (f"sqlite:///{folder}/{name}.db" for name in ("full", "empty"))
        asyncio.run(_make([full, empty]))
        started = time.monotonic()
        fill(Path(folder) / "full.db", given.signals)
        size = (Path(folder) / "full.db").stat().st_size / 2**30
        console.print(f"{given.signals:,} receipts, {size:.1f} GiB, written in {time.monotonic() - started:.0f} s", highlight=False)
        command = [sys.executable, "-m", "tests.bench.million_signals", "--build", full]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        built = json.loads(done.stdout)
        console.print(
            f"dataset: {built['seconds']:.0f} s (target {SECONDS:.0f}), {built['gibibytes']:.2f} GiB at most (target {GIBIBYTES:.0f}); "
            f"{built['observations']:,} observations, {built['left_out']}",
            highlight=False,
        )
        times = asyncio.run(_commit([full, empty], given.commits))
        for name, of in zip(("full", "empty"), times, strict=True):
            console.print(
                f"commit to the {name} store: p50 {np.percentile(of, 50):.2f} ms, p99 {np.percentile(of, 99):.2f} ms", highlight=False
            )
        console.print(f"p50 full / empty: {np.percentile(times[0], 50) / np.percentile(times[1], 50):.2f}", highlight=False)


async def _make(urls: Sequence[str]) -> None:
    for url in urls:
        store = SqlStore(url)
        await store.open()
        await store.close()


def fill(path: Path, count: int) -> None:
    """Write receipts in bulk: texts of the seed set with a word of their own, a few to a session, one in six with feedback or a failure."""
    texts = [row.text for row in read_rows(ROOT / "datasets/seed")]
    decision, signal = ({k: _plain(v) for k, v in of.items()} for of in (decision_values(a_receipt()), signal_values(a_receipt())))
    decision["stages"] = json.dumps({"padding": "x" * PADDING})
    draws, began = random.Random(1), datetime.now(UTC) - timedelta(days=90)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for start in range(0, count, BATCH):
            rows = list(_rows(decision, signal, texts, draws, began, range(start, min(count, start + BATCH))))
            for at, table in enumerate(("decision", "signal")):
                some = [row[at] for row in rows]
                named = ", ".join(f":{name}" for name in some[0])
                connection.executemany(f"INSERT INTO {table} ({', '.join(some[0])}) VALUES ({named})", some)  # names of ours
            connection.commit()


def _rows(
    decision: dict[str, object], signal: dict[str, object], texts: Sequence[str], draws: random.Random, began: datetime, numbers: range
) -> Iterator[tuple[dict[str, object], dict[str, object]]]:
    for number in numbers:
        moment = began + timedelta(seconds=7 * number)
        at = moment.replace(tzinfo=None).isoformat(sep=" ")
        decision_id, session = str(_id_of(moment, draws)), f"s-{number // 4}"
        failed = draws.random() < 0.08
        text = f"{draws.choice(texts)} {draws.getrandbits(40):x}"
        common = {"decision_id": decision_id, "session_id": session, "user_id": f"u-{number // 40}"}
        outcome = {"agents_selected": '["gap_analyzer"]', "agents_succeeded": int(not failed), "agents_failed": int(failed)}
        said = {"corrected_agent": "drift_monitor" if draws.random() < 0.1 else None, "was_rerouted": failed, "rung": "student"}
        query_id = str(UUID(int=draws.getrandbits(128)))
        yield (
            {**decision, **common, "query_id": query_id, "committed_at": at},
            {**signal, **common, **outcome, **said, "signal_id": decision_id, "query": text, "created_at": at, "updated_at": at},
        )


def _id_of(moment: datetime, draws: random.Random) -> UUID:
    """Return an id as the service would have made it then."""
    return UUID(int=int(moment.timestamp() * 1_000) << 80 | 7 << 76 | draws.getrandbits(12) << 64 | 2 << 62 | draws.getrandbits(62))


def _plain(value: object) -> object:
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json())
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def _build(url: str) -> None:
    started, scrub = time.monotonic(), Scrubber()
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as folder:
        logged = observe(SignalLog(url).batches(columns=COLUMNS), scrub)
        made = build_snapshot(logged, read_rows(ROOT / "datasets/seed"), frozenset(), scrub)
        manifest = made.write(Path(folder))
    found = {
        "seconds": time.monotonic() - started,
        "gibibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "observations": made.observations.num_rows,
        "left_out": manifest["left_out"],
    }
    print(json.dumps(found))  # noqa: T201


async def _commit(urls: Sequence[str], count: int) -> list[list[float]]:
    """Commit to each store in turn, one after the other, and return the times in milliseconds."""
    stores, times = [SqlStore(url) for url in urls], [list[float]() for _ in urls]
    for store in stores:
        await store.open()
    for number in range(count + 20):
        for store, of in zip(stores, times, strict=True):
            receipt = a_receipt(query_id=uuid4())
            started = time.perf_counter()
            await store.commit(receipt)
            if number >= 20:
                of.append((time.perf_counter() - started) * 1_000)
    for store in stores:
        await store.close()
    return times


if __name__ == "__main__":
    main()
