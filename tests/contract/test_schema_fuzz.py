"""Schemathesis over the app: whatever the OpenAPI document allows or forbids, the answers are the documented ones and none is a 5xx."""

import os
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig
from schemathesis.python import asgi
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from service.access.keys import Keys
from service.catalog.model import Catalog
from service.programs import Router
from tests.conftest import World

OPERATIONS = {
    ("POST", "/orchestrate"): 32,
    ("POST", "/orchestrate/stream"): 32,
    ("POST", "/route"): 32,
    ("POST", "/feedback"): 32,
    ("GET", "/decisions/{decision_id}"): 20,
    ("POST", "/optimizations"): 32,
    ("GET", "/optimizations"): 5,
    ("GET", "/optimizations/{request_id}"): 20,
    ("POST", "/routers/rollback"): 1,
    ("GET", "/agents"): 1,
    ("GET", "/intents"): 1,
    ("GET", "/healthz"): 1,
    ("GET", "/readyz"): 1,
    ("GET", "/metrics"): 1,
}
# Rules beyond the schema: which fields of feedback go together, and that agents are those of the catalogue.
EXCLUDED = {path: [positive_data_acceptance] for path in ("/feedback", "/optimizations")}
WALKED = int(os.environ.get("FUZZ_CASES", "300"))  # requests along the links; `make fuzz` asks for 2,000
STEPS = 10  # of one walk
LOOKED_UP = ("/decisions/{decision_id}", "/optimizations/{request_id}")
MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
CASES = [(method, path, mode) for (method, path), count in OPERATIONS.items() for mode in MODES if count > 1 or mode is MODES[0]]


@pytest.fixture(scope="module")
def fuzzed(catalog: Catalog, router: Router) -> Iterator[tuple[Any, Any]]:
    """Give the schema, read from the app itself, and an open session with the app."""
    world = World(catalog, router)
    world.keys = Keys.parse(f"acme:{sha256(b'key').hexdigest()}:tier:* models:* routers:*")
    app = world.app()
    config = SchemathesisConfig(projects=ProjectsConfig(default=ProjectConfig(generation=GenerationConfig(deterministic=True))))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, config=config)
    with asgi.get_client(app) as session:
        session.headers["X-API-Key"] = "key"
        yield schema, session


def test_every_operation_of_the_document_is_fuzzed(fuzzed: tuple[Any, Any]) -> None:
    """A route that is added without a row in the table is named here."""
    documented = {(o.ok().method.upper(), o.ok().path) for o in fuzzed[0].get_all_operations()}

    assert documented == OPERATIONS.keys()


@pytest.mark.parametrize(("method", "path", "mode"), CASES, ids=[f"{method} {path} {mode.value}" for method, path, mode in CASES])
def test_no_generated_request_gets_an_undocumented_answer(
    fuzzed: tuple[Any, Any], method: str, path: str, mode: schemathesis.GenerationMode
) -> None:
    """Status, content type and body are those of the document; what the document forbids is refused; nothing is a 5xx."""
    schema, session = fuzzed
    count, answers = OPERATIONS[method, path], []

    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    def exchange(case: schemathesis.Case) -> None:
        response = case.call(session=session)
        too_large = [negative_data_rejection] if response.status_code == 413 else []  # a refusal, which that check does not count as one
        case.validate_response(response, excluded_checks=[*EXCLUDED.get(path, []), *too_large])
        answers.append(response.status_code)

    exchange()

    assert len(answers) >= min(count, 10)
    assert max(answers) < 500
    assert 401 not in answers  # else nothing behind the lock was tried


def test_what_one_answer_leads_to_gets_documented_answers_too(fuzzed: tuple[Any, Any]) -> None:
    """Along the document's links: an answer, its receipt, feedback on it, the same question again; a wish and what became of it."""
    schema, session = fuzzed
    answers, followed = [], Counter[str]()

    # Without the list, which needs no body and so would be where nearly every walk begins.
    class Walk(schema.exclude(method="GET", path="/optimizations").as_state_machine()):  # type: ignore[misc]  # made at run time
        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, Any]:
            return {"session": session}

        def validate_response(self, response: Any, case: schemathesis.Case, *_: Any, **__: Any) -> None:
            too_large = [negative_data_rejection] if response.status_code == 413 else []
            case.validate_response(response, excluded_checks=[*EXCLUDED.get(case.path, []), *too_large])
            answers.append(response.status_code)
            followed[f"{case.method} {case.path} {response.status_code}"] += 1

    Walk.run(
        settings=settings(
            max_examples=WALKED * 13 // (STEPS * 10),  # some walks end early
            stateful_step_count=STEPS,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
    )

    assert len(answers) >= WALKED
    assert max(answers) < 500
    assert {f"GET {path} 200" for path in LOOKED_UP} <= followed.keys()
    assert followed["POST /feedback 200"] > 0
