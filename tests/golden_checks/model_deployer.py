"""Checks what model_deployer did against the registry before and after, and against the plain words of the request."""

import re
import unicodedata
from typing import Any

from service.agents.sample_data import Snapshot

ROUTER = "pointsman-router"
Registry = dict[str, dict[str, Any]]
"""By model: `aliases` (alias to version number) and `versions` (number, as text, to its tags)."""
WORDS = (
    ("roll_back", r"roll(?:ed)? ?back|undo|put the old"),
    ("shadow", r"shadow"),
    ("stage", r"(?:to|into) staging"),
    ("retire", r"retire|offline"),
)
IMPOSSIBLE = r"rest endpoint|autoscaling|tonight|on sunday night|users only|by noon|midwest still"
REASONS = {"unknown_entity", "missing_data", "insufficient_data", "unsupported_request", "registry_unavailable"}


def check(query: str, handoff: dict[str, Any], data: Snapshot, versions: dict[str, Registry]) -> None:
    """Check one answer. `versions` holds the registry `before` and `after` it, as `read_registry` gives it."""
    before, after = versions["before"], versions["after"]
    assert before.get(ROUTER) == after.get(ROUTER), "the router's own model was touched"
    assert set(before) == set(after)
    text = _plain(query)
    if handoff["execution"]["status"] == "failed":
        assert before == after, "a refused request changed the registry"
        _check_refusal(text, handoff, before, data)
        return
    assert not re.search(rf"\b(?:{IMPOSSIBLE})\b", text), "something impossible was answered as if it had been done"
    output = handoff["result"]["primary_output"]
    name = output["model"]
    assert name != ROUTER
    assert {one: state for one, state in before.items() if one != name} == {one: state for one, state in after.items() if one != name}
    assert output["aliases"] == after[name]["aliases"]
    _check_moves(output, before[name], after[name])
    for action, words in WORDS:
        if re.search(rf"\b(?:{words})\b", text):
            assert output["action"] == action, f"{action} was asked for, {output['action']} was done"
            break
    if re.search(r"\bhold\b", text):
        assert not output["changed"]
        assert before == after
    if said := re.search(r"\b(?:v|version )(\d+)\b", text):
        assert int(said[1]) in output["versions"] or output["action"] == "hold"
    if share := re.search(r"(\d+)\s*%", query):
        assert output["canary_share"] in {None, int(share[1]) / 100}
    if output["action"] == "promote" and output["changed"]:
        _check_promotion(output, before[name], after[name], text)


def read_registry(client: Any) -> Registry:
    """Return every registered model with its aliases and its versions' tags, through MLflow's client."""
    found: Registry = {}
    for model in client.search_registered_models():
        aliases = client.get_registered_model(model.name).aliases
        versions = client.search_model_versions(f"name = '{model.name}'")
        found[model.name] = {
            "aliases": {alias: int(number) for alias, number in aliases.items()},
            "versions": {str(one.version): dict(one.tags) for one in versions},
        }
    return found


def _check_refusal(text: str, handoff: dict[str, Any], before: Registry, data: Snapshot) -> None:
    error = handoff["errors"]
    assert error["error_type"] in REASONS, error
    models = [name for name in before if name != ROUTER]
    if error["error_type"] == "unsupported_request":
        quoted = re.findall(r"'([^']+)'", error["error_message"])
        assert any(_plain(words) in text for words in quoted) or "names no step" in error["error_message"]
        return
    if not models:
        assert "registered" in error["error_message"]
        return
    if error["error_type"] == "unknown_entity":
        assert any(name in error["error_message"] for name in models), "the refusal does not say what there is"
        brands = [name.lower() for name in set(data.hcps["brand"]) if name.lower() in text.split()]
        for name in models:
            assert name not in text, f"{name} was named in full"
            plainly = brands and all(part in text.split() for part in name.split("-") if part != "e2i")
            assert not plainly or "version" in error["error_message"], f"{name} was named plainly"


def _check_moves(output: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> None:
    aliases = dict(before["aliases"])
    for move in output["moves"]:
        assert aliases.get(move["alias"]) == move["from"], move
        if move["to"] is None:
            del aliases[move["alias"]]
        else:
            assert str(move["to"]) in before["versions"]
            aliases[move["alias"]] = move["to"]
    assert aliases == after["aliases"], "the moves told are not the moves made"
    for tag in output["tags"]:
        assert after["versions"][str(tag["version"])][tag["tag"]] == tag["value"]
    if not output["changed"]:
        assert before == after


def _check_promotion(output: dict[str, Any], before: dict[str, Any], after: dict[str, Any], text: str) -> None:
    live = after["aliases"]["production"]
    assert live == output["versions"][0]
    former = before["aliases"].get("production")
    if former is not None:
        assert after["aliases"]["previous"] == former
    if re.search(r"\b(?:v|version|candidate|run) ?\w*\d", text):
        return
    tags = before["versions"][str(live)]
    assert "score" in tags, "an unnamed version without evaluation went live"
    if former is not None:
        rival = before["versions"][str(former)]
        better = (
            float(tags["score"]) >= float(rival["score"])
            if tags["higher_is_better"] == "true"
            else float(tags["score"]) <= float(rival["score"])
        )
        assert better, "an unnamed version with a worse evaluation went live"


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold()))
