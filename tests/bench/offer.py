"""What a bench offers a system under test: questions, and the load generator of `tests.bench.load` at a rate or up to saturation."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from optimizers.dataset import read_rows
from service.catalog.loader import load_catalog
from service.routing.clauses import split
from service.routing.encoder import Encoder
from tests.bench.systems import ROOT, System

TOKENS, SEED = (19, 21), 7
OFFERED, STEP, KEPT = 40.0, 1.2, 0.97  # requests a second; the next is so much higher, until less than so much is answered in time


def write_texts(folder: Path, *, clauses: bool | None = None) -> Path:
    """Write questions of about twenty tokens, of intents that change nothing, in a random order.

    `clauses`: only those in which a router looks for several wishes, or only those in which it does not; None: all.
    """
    catalog, encoder = load_catalog(), Encoder()
    rows = [r for r in read_rows(ROOT / "datasets/seed") if r.label in catalog.intent and catalog.is_reading(r.label)]
    wanted = [r for r in rows if clauses is None or (split(r.text) is not None) is clauses]
    chosen = [{"text": r.text, "intent": r.label} for r in wanted if TOKENS[0] <= len(encoder.encode(r.text).tokens) + 2 <= TOKENS[1]]
    random.Random(SEED).shuffle(chosen)
    path = folder / f"texts-{clauses}.json"
    path.write_text(json.dumps(chosen))
    return path


def offer(system: System, texts: Path, rate: float, seconds: float, seed: int = 7) -> dict[str, Any]:
    """Run the load generator on a system; see `tests.bench.load` for what it prints."""
    command = [sys.executable, "-m", "tests.bench.load", "--url", f"http://127.0.0.1:{system.port}{system.path}", "--texts", str(texts)]
    command += ["--rate", str(rate), "--seconds", str(seconds), "--seed", str(seed), "--body", system.body]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(json.loads(run.stdout))


def saturate(system: System, texts: Path, seconds: float) -> tuple[float, float]:
    """Offer more and more, until too little of it is answered in time; return the most that was answered, and the last offer."""
    best, offered = 0.0, OFFERED
    while True:
        result = offer(system, texts, offered, seconds)
        good = sum(n for status, n in result["statuses"].items() if status.startswith("200")) / seconds
        best = max(best, min(good, result["answered"]))
        if min(good, result["answered"]) < KEPT * result["offered"]:
            return best, offered
        offered *= STEP
