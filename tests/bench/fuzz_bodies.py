"""Bodies that were valid once, for every route that takes one: changed in one place or a few, with an eye on their structure.

Each maker takes a seeded generator. The kinds are those that public bug trackers of routers and gateways tell of: parameters of another
type or left out that became a 500, halves of surrogate pairs that broke the error's own JSON, names given twice, answers that repeat a
whole body once an error.
"""

import json
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any
from uuid import UUID

from tests.contract.hostile import CONTROLS, JUNK, MARK, Hostile, full, places
from tests.contract.hostile_texts import ODD_TEXT

ASKED = (
    "@gap_analyzer where are we leaving scripts on the table?",
    "@drift_monitor has anything shifted?",
    "@explainer what is ATE?",
    "check for drift, then explain it",
    "Did the rep visits lift Kisqali TRx in the Midwest?",
    "hello",
    "",
)
TWICE = "THE-SECOND"  # a name that stands for one that is there already
INDENTED = 5_000  # characters at most of what is written over several lines: deep nests would become very wide
Change = Callable[[random.Random, Any, Any], None]  # of a container, at a key


def some_id(rng: random.Random) -> str:
    """Return an id that nobody has used."""
    return str(UUID(int=rng.getrandbits(128), version=4))


def question(rng: random.Random) -> dict[str, Any]:
    """Return a valid question, complete or bare."""
    body = full(rng) if rng.random() < 0.5 else {"parsed_query": {"query_id": some_id(rng)}, "user_id": "u", "session_id": "s"}
    body["parsed_query"]["raw_query"] = rng.choice(ASKED)
    return body


def feedback(rng: random.Random, decisions: list[str]) -> dict[str, Any]:
    """Return valid feedback on a decision that is there, or not."""
    known = rng.choice(decisions) if decisions and rng.random() < 0.7 else some_id(rng)
    said = {"user_satisfaction": 4, "answer_quality": 0.5, "was_rerouted": False, "corrected_agent": "explainer"}
    return {rng.choice(["decision_id", "decision_id", "query_id"]): known} | dict(rng.sample(sorted(said.items()), rng.randint(1, 4)))


def wish(rng: random.Random) -> dict[str, Any]:
    """Return a valid wish for a better router, with signals or without."""
    signal = {
        "session_id": MARK,
        "query": f"Which accounts buy {MARK}?",
        "query_pattern": "gap_analysis",
        "intent": "prediction",
        "agents_selected": ["prediction_synthesizer"],
        "routing_confidence": 0.6,
        "routing_rationale": MARK,
        "corrected_agent": "gap_analyzer",
    }
    signals = [signal | {"signal_id": some_id(rng)} for _ in range(rng.choice([0, 1, 3, 40]))]
    return {"agent_name": "orchestrator", "signature_name": "routing", "priority": "low", "training_signals": signals}


def odd_text(rng: random.Random) -> str:
    """Return a text of pieces that break readers, or of any code points, halves of surrogate pairs among them."""
    if rng.random() < 0.5:
        return rng.choice(ODD_TEXT + CONTROLS) * rng.choice([1, 1, 2, 100])
    return "".join(chr(rng.randrange(0x110000)) for _ in range(rng.choice([1, 3, 30, 600])))


def odd_number(rng: random.Random) -> int | float:
    """Return a number at an edge."""
    exact = [2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**308, 10**400, -1, 0]
    return rng.choice([*exact, 1e308, -1e308, 5e-324, -0.0, 0.1 + 0.2, 1.0000000001, rng.uniform(-2, 2)])


def _replace(rng: random.Random, container: Any, key: Any) -> None:
    container[key] = deepcopy(rng.choice(JUNK))


def _drop(rng: random.Random, container: Any, key: Any) -> None:
    del container[key]


def _another_text(rng: random.Random, container: Any, key: Any) -> None:
    old = container[key] if isinstance(container[key], str) else ""
    container[key] = rng.choice([odd_text(rng), old + odd_text(rng), odd_text(rng) + old, old * 50, old.upper(), f" {old}\t", old[:-1]])


def _another_number(rng: random.Random, container: Any, key: Any) -> None:
    container[key] = odd_number(rng)


def _another_type(rng: random.Random, container: Any, key: Any) -> None:
    old = container[key]
    container[key] = rng.choice([str(old), [old], {"value": old}, not old, None, json.dumps(old, default=str), [old, old, None]])


def _nest(rng: random.Random, container: Any, key: Any) -> None:
    inner: Any = container[key]
    for _ in range(rng.choice([2, 20, 120, 190, 250])):
        inner = [inner] if rng.random() < 0.5 else {"": inner}
    container[key] = inner


def _rename(rng: random.Random, container: Any, key: Any) -> None:
    if isinstance(container, dict):
        container[rng.choice([str(key).upper(), f"{key} ", f"\u200b{key}", f"{key}\x00", odd_text(rng), f"{key}[]"])] = container.pop(key)


def _name_twice(rng: random.Random, container: Any, key: Any) -> None:
    if isinstance(container, dict):
        container[TWICE + str(key)] = deepcopy(rng.choice(JUNK))


def _multiply(rng: random.Random, container: Any, key: Any) -> None:
    if isinstance(container[key], list):
        container[key] = container[key] * rng.choice([2, 30, 1_001])


CHANGES: tuple[Change, ...] = (
    _replace,
    _replace,
    _drop,
    _another_text,
    _another_text,
    _another_number,
    _another_type,
    _nest,
    _rename,
    _name_twice,
    _multiply,
)


def mutated(rng: random.Random, body: dict[str, Any]) -> bytes:
    """Change a body in up to four places and write it, in one of the ways in which JSON can be written."""
    for _ in range(rng.choice([0, 1, 1, 1, 2, 4])):
        container, key = rng.choice(places(body) or [({"": 0}, "")])
        rng.choice(CHANGES)(rng, container, key)
    plain = rng.random() < 0.5
    text = json.dumps(body, ensure_ascii=plain, separators=rng.choice([(",", ":"), None]))
    if len(text) < INDENTED and rng.random() < 0.3:
        text = json.dumps(body, ensure_ascii=plain, indent=1)
    return text.replace(f'"{TWICE}', '"').encode("utf-8", "surrogatepass")


def changed(rng: random.Random, decisions: list[str]) -> Hostile:
    """Return a changed body for one of the routes that take one."""
    path = rng.choice(["/orchestrate"] * 4 + ["/orchestrate/stream", "/route", "/route", "/feedback", "/feedback", "/optimizations"])
    body = feedback(rng, decisions) if path == "/feedback" else wish(rng) if path == "/optimizations" else question(rng)
    return Hostile(mutated(rng, body), path=path)


def looked_up(rng: random.Random, decisions: list[str], wishes: list[str]) -> Hostile:
    """Ask for what is there, or nearly, with odd ids and many parameters."""
    kind, ids = rng.choice([("decisions", decisions)] * 2 + [("optimizations", wishes)])
    there = rng.choice(ids) if ids and rng.random() < 0.6 else some_id(rng)
    odd = rng.choice(
        [there] * 3 + [there.upper(), f"{{{there}}}", f"urn:uuid:{there}", there[:-1], there * 2, odd_text(rng)[:50], "..", "%"]
    )
    path = rng.choice([f"/{kind}/{odd}"] * 3 + ["/optimizations", "/agents", "/intents"])
    path = rng.choice([path] * 9 + ["/metrics", "/healthz", "/readyz", "/openapi.json", "/docs"])
    names = ["status", "status[]", "", "__proto__", odd_text(rng)[:20]]
    values = ["pending", "done", "", "1", MARK, odd_text(rng)[:80], "%", "a" * 3_000]
    asked = "&".join(f"{rng.choice(names)}={rng.choice(values)}" for _ in range(rng.choice([0, 0, 1, 2, 1_000])))
    return Hostile(b"", {}, f"{path}?{asked}"[:60_000] if asked else path, "GET")
