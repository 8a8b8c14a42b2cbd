"""docs/security.md names a test for every threat, and each is there."""

import ast
import re

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
ROWS = [line for line in PAGE.split("| threat |")[1].splitlines() if line.startswith("| ") and not line.startswith("| defence")]
NAMED = re.compile(r"`(tests/[a-z0-9_/]+\.py)(?:::([a-z0-9_]+))?`")


def test_every_threat_has_a_test_that_exists() -> None:
    """A file is enough only where all of its tests are about the threat."""
    without = [row.split("|")[1].strip() for row in ROWS if not NAMED.search(row)]
    missing = []
    for file, name in (found for row in ROWS for found in NAMED.findall(row)):
        path = ROOT / file
        functions = {n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        if name and name not in functions:
            missing.append(f"{file}::{name}")

    assert len(ROWS) > 20
    assert (without, missing) == ([], [])
