"""The shipped data are as their datasheet says, and a malformed line is named by file and number."""

import gzip
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers.dataset import Row, hash_rows, read_descriptions, read_rows, said_before
from service.catalog.loader import load_catalog
from service.routing.student import OUT_OF_SCOPE
from tests.conftest import ROOT

DATASETS = ROOT / "datasets"
INTENTS = set(load_catalog().intent)
LEAST_SEED, LEAST_SEED_OOS, GOLDEN, GOLDEN_OOS = 80, 150, 25, 60
TOO_ALIKE = 0.35  # Jaccard similarity of word trigrams
GOOD = '{"text": "where is the gap", "label": "gap_analysis"}\n'


@pytest.fixture(scope="module")
def seed() -> list[Row]:
    """The rows of the seed set."""
    return read_rows(DATASETS / "seed")


@pytest.fixture(scope="module")
def golden() -> list[Row]:
    """The rows of the golden set."""
    return read_rows(DATASETS / "golden")


def normalized(text: str) -> str:
    """Return letters and digits only, in lower case."""
    return re.sub(r"[\W_]+", "", text.lower())


def trigrams(text: str) -> frozenset[tuple[str, ...]]:
    """Return the word trigrams of a text, or its words where there are fewer than three."""
    words = re.findall(r"\w+", text.lower())
    return frozenset(zip(words, words[1:], words[2:], strict=False)) or frozenset((w,) for w in words)


def test_the_seed_set_covers_every_intent(seed: list[Row]) -> None:
    """At least 80 requests for each of the catalogue's intents, and 150 out of scope."""
    counts = Counter(r.label for r in seed)

    assert counts.keys() == INTENTS | {OUT_OF_SCOPE}
    assert min(counts[i] for i in INTENTS) >= LEAST_SEED
    assert counts[OUT_OF_SCOPE] >= LEAST_SEED_OOS


def test_the_golden_set_is_balanced(golden: list[Row]) -> None:
    """25 requests for each intent, 60 out of scope."""
    assert Counter(r.label for r in golden) == {**dict.fromkeys(INTENTS, GOLDEN), OUT_OF_SCOPE: GOLDEN_OOS}


@pytest.mark.parametrize(
    "path", sorted([*DATASETS.glob("seed/*.jsonl"), *DATASETS.glob("golden/*.jsonl")]), ids=lambda p: f"{p.parent.name}/{p.name}"
)
def test_every_line_keeps_to_the_schema(path: Path) -> None:
    """In a file of the seed set, every line also has the file's label."""
    validator = jsonschema.Draft202012Validator(json.loads((DATASETS / "schema.json").read_text()))

    for number, line in enumerate(path.read_text().splitlines(), 1):
        row = json.loads(line)
        problems = [e.message for e in validator.iter_errors(row)]
        assert problems == [], f"{path}:{number}"
        assert path.parent.name != "seed" or row["label"] == path.stem
        assert row["writer"]


@pytest.mark.parametrize("name", ["dev", "test", "fresh"])
def test_requests_with_several_intents_are_well_formed_and_nowhere_else(seed: list[Row], golden: list[Row], name: str) -> None:
    """Known labels, nothing both wanted and not wanted, an order only where there is one to give, and no text that is trained on."""
    catalog, known = load_catalog(), {r.text.strip().lower() for r in [*seed, *golden]}
    rows = [json.loads(line) for line in (DATASETS / "several" / f"{name}.jsonl").read_text().splitlines()]

    for row in rows:
        assert row.keys() == {"text", "intents", "ordered", "negated"}
        assert set(row["intents"]) | set(row["negated"]) <= set(catalog.intent)
        assert not set(row["intents"]) & set(row["negated"])
        assert len(set(row["intents"])) == len(row["intents"])
        assert len(row["intents"]) > 1 or not row["ordered"]
        assert row["text"].strip().lower() not in known
    assert len({row["text"] for row in rows}) == len(rows)


@pytest.mark.parametrize("name", ["dev", "test"])
def test_conversations_are_well_formed_and_nowhere_else(seed: list[Row], golden: list[Row], name: str) -> None:
    """Known labels, someone spoke before, the user did at least once, and no text that is trained on."""
    path = DATASETS / "conversations" / f"{name}.jsonl"
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    rows, known = read_rows(path), {normalized(r.text) for r in [*seed, *golden]}

    for row, kind in zip(rows, kinds, strict=True):
        said = said_before(row)
        assert 1 <= len(said) <= 4
        assert any(u.by_user for u in said)
        assert all(u.text and u.text[:2] not in {"U:", "S:"} for u in said)
        assert (row.label == "oos") == (kind == "out_of_scope")
        assert row.label in {*load_catalog().intent, "oos"}
        assert normalized(row.text) not in known
    assert set(kinds) == {"follow_up", "new_topic", "same_topic", "out_of_scope", "after_out_of_scope"}
    assert len({r.text for r in rows}) == len(rows)


def test_a_history_says_who_spoke() -> None:
    """U: or nothing for the user, S: for the system; the mark is no part of what was said."""
    said = said_before(Row("x", "a", None, ("U: is it up", "S: Yes.", "since when")))

    assert said == [("is it up", True), ("Yes.", False), ("since when", True)]


def test_descriptions_are_gathered_from_all_depths(tmp_path: Path) -> None:
    """The label's own first, whatever its key is called."""
    path, service = tmp_path / "c.json", {"service": "s", "description": "one", "intents": [{"name": "i", "description": "two"}]}
    path.write_text(json.dumps([service, {"label": "t", "description": "x"}]))

    assert read_descriptions(path) == {"s": ["one", "two"], "t": ["x"]}


BROKEN_LISTS = {
    "empty": ("", "expected a JSON list"),
    "cut off": ('[\n{"label": "a",', "line 2"),
    "null": ("null", "expected a JSON list"),
    "an object": ('{"label": "a", "description": "x"}', "expected a JSON list"),
    "too deep": ("[" * 100_000, "expected a JSON list"),
    "no entry": ("[]", "at least one label"),
    "a number": ("[1]", "entry 1"),
    "a text": ('["a label and a name"]', "entry 1"),
    "no description": ('[{"label": "a", "description": "x"}, {"label": "b"}]', "entry 2"),
    "a blank description": ('[{"label": "a", "description": " "}]', "entry 1"),
    "no label": ('[{"description": "x"}]', "entry 1"),
    "a label that is a number": ('[{"label": 1, "description": "x"}]', "entry 1"),
    "an empty label": ('[{"label": "", "description": "x"}]', "entry 1"),
    "a blank label": ('[{"label": " ", "description": "x"}]', "entry 1"),
    "a label twice": ('[{"label": "a", "description": "x"}, {"name": "a", "description": "y"}]', "entry 2: the label 'a' is there twice"),
    "half a surrogate pair in a label": ('[{"label": "\\ud800", "description": "x"}]', "entry 1: half of a surrogate pair"),
    "half a surrogate pair, deeper": ('[{"label": "a", "intents": [{"description": "\\udfff"}]}]', "entry 1: half of a surrogate pair"),
}


@pytest.mark.parametrize(("content", "said"), BROKEN_LISTS.values(), ids=BROKEN_LISTS)
def test_a_broken_list_of_descriptions_is_named_by_file_and_entry(tmp_path: Path, content: str, said: str) -> None:
    """On one line, with what is wrong."""
    path = tmp_path / "c.json"
    path.write_text(content)

    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: .*{re.escape(said)}") as caught:
        read_descriptions(path)

    assert "\n" not in str(caught.value)


def test_the_manifest_is_true() -> None:
    """Counts and hashes are those of the files."""
    manifest = json.loads((DATASETS / "manifest.json").read_text())

    found = {}
    for name, entry in manifest.items():
        rows = read_rows(DATASETS / entry["path"])
        labels = dict(sorted(Counter(r.label for r in rows).items()))
        found[name] = {"path": entry["path"], "rows": len(rows), "labels": labels, "sha256": hash_rows(rows)}

    assert found == manifest
    assert manifest.keys() == {"seed", "golden"}


def test_no_request_occurs_twice(seed: list[Row], golden: list[Row]) -> None:
    """Letters and digits compared, in and between the sets, whatever the label: no golden text is in the seed set."""
    counts = Counter(normalized(r.text) for r in [*seed, *golden])

    assert [text for text, n in counts.items() if n > 1] == []


def test_no_golden_request_is_nearly_a_seed_request(seed: list[Row], golden: list[Row]) -> None:
    """Word trigrams overlap by no more than .35 (Jaccard)."""
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    parts = [trigrams(r.text) for r in seed]
    for i, grams in enumerate(parts):
        for gram in grams:
            holders[gram].append(i)

    alike = []
    for row in golden:
        grams = trigrams(row.text)
        shared = Counter(i for gram in grams for i in holders.get(gram, ()))
        alike += [(row.text, seed[i].text) for i, n in shared.items() if n / len(grams | parts[i]) > TOO_ALIKE]

    assert alike == []


def test_the_writers_of_the_golden_set_wrote_nothing_of_the_seed_set(seed: list[Row], golden: list[Row]) -> None:
    """Nobody's hand is on both sides."""
    assert not {r.writer for r in seed} & {r.writer for r in golden}
    assert None not in {r.writer for r in [*seed, *golden]}


def test_every_writer_of_the_seed_set_wrote_for_most_labels(seed: list[Row]) -> None:
    """Holding a writer out takes no label away from training."""
    labels = defaultdict(set)
    for row in seed:
        labels[row.label].add(row.writer)

    assert min(len(writers) for writers in labels.values()) >= 3


MALFORMED = {
    "no JSON": "where is the gap\n",
    "cut off": '{"text": "where", "lab\n',
    "empty line": "\n",
    "a list": '["where", "gap_analysis"]\n',
    "a text": '"where"\n',
    "a number": "1\n",
    "null": "null\n",
    "no text": '{"label": "gap_analysis"}\n',
    "no label": '{"text": "where"}\n',
    "text is null": '{"text": null, "label": "gap_analysis"}\n',
    "text is a number": '{"text": 5, "label": "gap_analysis"}\n',
    "text is empty": '{"text": "", "label": "gap_analysis"}\n',
    "label is null": '{"text": "where", "label": null}\n',
    "label is empty": '{"text": "where", "label": ""}\n',
    "label is a list": '{"text": "where", "label": ["gap_analysis"]}\n',
    "label is blank": '{"text": "where", "label": " "}\n',
    "writer is a list": '{"text": "where", "label": "gap_analysis", "writer": ["a"]}\n',
    "writer is a number": '{"text": "where", "label": "gap_analysis", "writer": 1}\n',
    "writer is false": '{"text": "where", "label": "gap_analysis", "writer": false}\n',
    "history is a number": '{"text": "where", "label": "gap_analysis", "history": 0}\n',
    "history is a text": '{"text": "where", "label": "gap_analysis", "history": "before"}\n',
    "history is an object": '{"text": "where", "label": "gap_analysis", "history": {}}\n',
    "history has a number": '{"text": "where", "label": "gap_analysis", "history": ["before", 1]}\n',
    "half a surrogate pair": '{"text": "where", "label": "gap_analysis", "history": ["\\ud800"]}\n',
}


@pytest.mark.parametrize("line", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_malformed_line_is_named_by_file_and_number(tmp_path: Path, line: str, suffix: str) -> None:
    """Compressed or not, alone or in a folder."""
    path = tmp_path / f"rows{suffix}"
    content = (GOOD + line + GOOD).encode()
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)

    for where in (path, tmp_path):
        with pytest.raises(ValueError, match=rf"{re.escape(str(path))}:2: "):
            read_rows(where)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """In words, without an error number."""
    with pytest.raises(FileNotFoundError, match=r"^There is no file or folder .*rows\.jsonl\.$"):
        read_rows(tmp_path / "rows.jsonl")


@pytest.mark.parametrize("content", ["text,label\nwhere,gap\n", '"text"\t"label"\n', "[\n" + GOOD + "]\n"], ids=["CSV", "TSV", "a list"])
def test_a_file_of_another_format_is_told_what_is_expected(tmp_path: Path, content: str) -> None:
    """With a line that would do, and the line that does not."""
    path = tmp_path / "rows.csv"
    path.write_text(content)

    with pytest.raises(ValueError, match=r"rows\.csv:1: expected one JSON object a line, such as ") as caught:
        read_rows(path)

    said = str(caught.value)
    example = said[said.index("{") : said.index("}") + 1]
    assert json.loads(example).keys() == {"text", "label"}
    assert said.endswith(f"not {content.splitlines()[0]!r}.")


def test_a_folder_is_read_in_order_of_name_plain_and_compressed(tmp_path: Path) -> None:
    """Other files are left alone; a writer may be named or not."""
    (tmp_path / "b.jsonl").write_text('{"text": "b", "label": "y", "writer": "w"}\n')
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress('{"text": "ü", "label": "x"}\n'.encode()))
    (tmp_path / "README.md").write_text("not a row")

    assert read_rows(tmp_path) == [Row("ü", "x"), Row("b", "y", "w")]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    """That is for the fit to refuse."""
    (tmp_path / "a.jsonl").write_text("")

    assert read_rows(tmp_path) == []


def test_a_folder_without_data_and_a_file_that_is_not_there_are_said_so(tmp_path: Path) -> None:
    """Rather than fitting on nothing."""
    with pytest.raises(FileNotFoundError, match=r"holds no \.jsonl file"):
        read_rows(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_rows(tmp_path / "missing.jsonl")


rows = st.lists(st.builds(Row, st.text(max_size=5), st.text(max_size=3)), max_size=6)


@given(some=rows, other=rows)
def test_the_hash_tells_data_apart_but_not_their_order(some: list[Row], other: list[Row]) -> None:
    """Equal hashes mean equal texts and labels."""
    assert hash_rows(list(reversed(some))) == hash_rows(some)
    assert (hash_rows(some) == hash_rows(other)) is (Counter(some) == Counter(other))


def test_the_hash_leaves_writers_out() -> None:
    """It names what was learned from, not who wrote it."""
    assert hash_rows([Row("a", "b", "w")]) == hash_rows([Row("a", "b")])
