"""The rules of the code that a machine can check: imports, sizes, where prompts live, and what no file may hold."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from service.settings import Settings
from tests.conftest import ROOT

CODE = ("service", "signatures", "optimizers")
LONGEST_FILE = 400
LONGEST_TEXT = 600  # characters of a text that is not a docstring; a longer one is likely a prompt, and those live in `signatures`
BANNED = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "unittest.mock", "mlflow.dspy"}
REGISTRIES = ("pypi[.]org", "files[.]pythonhosted", "(?<!no-emit-)index[-]url", "/simple[/\"']", "npmjs[.]")  # no pattern matches itself


def tracked() -> list[Path]:
    """Return the files that git tracks or would track."""
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for name in names if (path := ROOT / name).is_file()]


@cache
def files() -> list[Path]:
    """Return the files that are ours."""
    try:
        return tracked()
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive has no git
        foreign = {".venv", "var", ".git", "__pycache__"}
        return [path for path in ROOT.rglob("*") if path.is_file() and not foreign & set(path.parts)]


@cache
def modules() -> dict[str, ast.Module]:
    """Return every module, tests and scripts too, by its path."""
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in files() if path.suffix == ".py"}


def sources() -> dict[str, ast.Module]:
    """Return the modules of what runs in production."""
    return {name: module for name, module in modules().items() if name.split("/")[0] in CODE}


def outside_signatures() -> dict[str, ast.Module]:
    """Return those where no prompt may stand."""
    return {name: module for name, module in sources().items() if not name.startswith("signatures/")}


def imports(module: ast.Module) -> set[str]:
    """Return the modules that a module imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def docstrings(module: ast.Module) -> set[int]:
    """Return the identities of the nodes that are docstrings."""
    owners = (n for n in ast.walk(module) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef))
    return {id(n.body[0].value) for n in owners if n.body and isinstance(n.body[0], ast.Expr)}


def test_there_is_something_to_check() -> None:
    """The rules below run over the whole code."""
    assert {name.split("/")[0] for name in sources()} == set(CODE)
    assert len(sources()) > 50


def test_imports_point_one_way() -> None:
    """Every contract of import-linter in pyproject.toml is kept."""
    program = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]  # a process of its own: it reconfigures logging
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken", done.stdout)


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    """A file over 400 lines asks to be split along its seam."""
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name in modules()}

    assert {name: n for name, n in lengths.items() if n > LONGEST_FILE} == {}


def test_every_module_says_what_it_is() -> None:
    """It opens with a docstring; an `__init__.py` holds nothing else."""
    silent = [name for name, module in sources().items() if not ast.get_docstring(module)]
    talkative = [name for name, module in modules().items() if name.endswith("__init__.py") and len(module.body) > 1]

    assert (silent, talkative) == ([], [])


def test_nothing_is_pickled_and_nothing_is_mocked() -> None:
    """Artifacts are safetensors and JSON; stand-ins are fakes that behave."""
    assert {name: sorted(found) for name, module in modules().items() if (found := imports(module) & BANNED)} == {}


def test_signatures_are_defined_in_signatures_only() -> None:
    """Every LM call is one of them, in one place."""
    classes = ((name, node) for name, module in outside_signatures().items() for node in ast.walk(module) if isinstance(node, ast.ClassDef))

    assert [(name, node.name) for name, node in classes for base in node.bases if ast.unparse(base).endswith("Signature")] == []


def test_no_prompt_stands_outside_of_signatures() -> None:
    """A long text that is no docstring would be one."""
    found = []
    for name, module in outside_signatures().items():
        harmless = docstrings(module)
        texts = (n for n in ast.walk(module) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in harmless)
        found += [(name, n.lineno) for n in texts if len(n.value) > LONGEST_TEXT]

    assert found == []


def test_the_service_does_not_configure_dspy_globally() -> None:
    """An LM is set for one call, never for the process."""
    online = {name: module for name, module in sources().items() if not name.startswith("optimizers/")}
    calls = ((name, ast.unparse(n.func)) for name, module in online.items() for n in ast.walk(module) if isinstance(n, ast.Call))

    assert [name for name, function in calls if function in {"dspy.configure", "dspy.settings.configure"}] == []


@pytest.mark.parametrize("program", ["service.cli", "optimizers.cli"])
def test_commands_start_without_what_takes_seconds_to_import(program: str) -> None:
    """`--help`, and a question to a running service, need none of it, nor does the memory of a service."""
    slow = ("sklearn", "scipy.stats", "matplotlib", "pandas", "mlflow", "dspy", "litellm", "pyarrow")
    code = f"import sys, {program}; print([name for name in {slow} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"


def test_no_assertion_guards_the_running_service() -> None:
    """`python -O` takes assertions out."""
    nodes = ((name, node) for name, module in sources().items() for node in ast.walk(module))

    assert [(name, node.lineno) for name, node in nodes if isinstance(node, ast.Assert)] == []


@pytest.mark.parametrize("pattern", REGISTRIES)
def test_no_file_names_a_package_registry(pattern: str) -> None:
    """Packages come from wherever the reader's own tools are set up for."""
    written = re.compile(pattern.encode())
    small = [p for p in files() if p.stat().st_size < 5_000_000]

    assert [str(p.relative_to(ROOT)) for p in small if written.search(p.read_bytes())] == []


def test_every_setting_is_in_the_readme_and_every_setting_of_the_readme_is_there() -> None:
    """By the name of its environment variable; `POINTSMAN_KEY` is the client's."""
    named = set(re.findall(r"POINTSMAN_(\w+)", (ROOT / "README.md").read_text())) - {"KEY"}

    assert named == {setting.upper() for setting in Settings.model_fields}


def test_data_folders_are_no_packages() -> None:
    """A package `datasets` would shadow the library of that name."""
    assert [name for name in modules() if name.split("/")[0] in {"datasets", "mlruns", "k8s"}] == []
