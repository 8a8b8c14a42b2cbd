"""The benchmark: no test text helps, every figure is what it says, and the page shows data as text."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from optimizers.bench import (
    Evaluated,
    bench,
    calibration_error_by_chance,
    evaluate_once,
    expected_calibration_error,
    keep_apart,
    time_reading,
)
from optimizers.bench_cli import app
from optimizers.dataset import Row
from optimizers.report import write_report
from optimizers.student import fit
from service.routing.encoder import MAX_TOKENS, Encoder, Encoding
from service.routing.policy import Policy
from tests.small_data import GAP, HEALTH, OOS, TWO

POLICY = Policy(refuse_above=0.5, act_above=0.8, clarify_below=0.5, accepted_in_scope=0.95, risk_target=0.02, coverage=0.5)


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading the encoder is half of the time of a command that has a few rows to fit."""
    monkeypatch.setattr("service.routing.encoder.Encoder", loaded)


@cache
def loaded(folder: Path | None = None, *, threads: int = 1) -> Encoder:
    """Return the real encoder."""
    return Encoder(folder, threads=threads)


def evaluated() -> Evaluated:
    """Four rows: sure and right, sure and wrong, unsure, sure but out of scope by score."""
    return Evaluated(
        tuple(Row(f"text {i}", "a") for i in range(4)),
        (("a",), ("b", "c", "a"), ("a",), ("a",)),
        np.array([0.95, 0.85, 0.6, 0.9]),
        np.array([0.1, 0.2, 0.3, 0.7]),
        np.array([0.9, 0.6, 0.25]),
    )


def test_what_is_acted_on_passed_both_thresholds() -> None:
    """In scope by score, and sure."""
    assert evaluated().acted(POLICY).tolist() == [True, True, False, False]
    assert evaluated().correct.tolist() == [True, False, True, True]


def test_out_of_scope_figures_compare_the_two_kinds() -> None:
    """AUROC counts pairs (9 of 12 in order); the recall counts what is above the score of 95 % of the in-scope rows."""
    assert evaluated().oos_auroc == pytest.approx(9 / 12)
    assert evaluated().oos_recall_at_95_inscope == pytest.approx(1 / 3)


def test_without_out_of_scope_rows_there_is_no_figure() -> None:
    """None, not a perfect score."""
    rows = Evaluated((Row("x", "a"),), (("a",),), np.ones(1), np.zeros(1), np.zeros(0))

    assert (rows.oos_auroc, rows.oos_recall_at_95_inscope) == (None, None)


def test_the_calibration_error_weighs_each_bin_by_its_rows() -> None:
    """Three rows at .9, two of them right, and one at .2 that is wrong: 3/4 of |.9 - 2/3| and 1/4 of .2."""
    error = expected_calibration_error(np.array([0.9, 0.9, 0.9, 0.2]), np.array([True, True, False, False]))

    assert error == pytest.approx(0.75 * (0.9 - 2 / 3) + 0.25 * 0.2)


def test_probabilities_of_zero_and_one_have_a_bin() -> None:
    """The last bin is closed."""
    assert expected_calibration_error(np.array([0.0, 1.0]), np.array([False, True])) == 0.0


def test_the_calibration_error_of_few_rows_is_told_from_chance() -> None:
    """Twelve rows at .5 that are half right, half wrong show an error by chance of .17 to .33; a hundred times as many a tenth of it."""
    few, many = (calibration_error_by_chance(np.full(rows, 0.5)) for rows in (12, 1_200))

    assert 1 / 6 <= few <= 1 / 3
    assert many == pytest.approx(1.96 * 0.5 / 1_200**0.5, rel=0.15)
    assert calibration_error_by_chance(np.ones(3)) == 0.0


def test_no_text_is_on_two_sides() -> None:
    """Case, spaces, letters of another width or another history do not make a text another one: the text is what is fitted on."""
    train = [Row("Is it  up", "a"), Row("b", "b"), Row("yes", "a", None, ("Shall I?",)), Row("c", "c"), Row("\uff49s it up", "a")]
    validation = [Row("is it up", "a"), Row("B", "b"), Row("d", "c")]
    test = [Row("is it up", "a"), Row("yes", "a", None, ("Really?",))]

    kept, apart, removed = keep_apart(train, validation, test)

    assert [r.text for r in kept] == ["b", "c"]
    assert [r.text for r in apart] == ["d"]
    assert removed == {"train": 3, "validation": 2}


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    """Write JSON lines."""
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Training, test and out-of-scope files; one label and one text would be markup."""
    gap, health = [(t, "gap") for t in GAP], [(t, "<b>health</b>") for t in HEALTH]
    odd = ("<script>alert(1)</script> which areas lag", "<b>health</b>")
    return {
        "train": write(tmp_path / "train.jsonl", [*gap[:4], *health[:4]]),
        "test": write(tmp_path / "test.jsonl", [gap[4], health[4], gap[0], odd]),
        "oos": write(tmp_path / "oos.jsonl", [(t, "whatever") for t in OOS]),
    }


def test_the_command_writes_figures_and_a_page(files: dict[str, Path], tmp_path: Path) -> None:
    """All figures are there, the row that train shares with test is left out, and the page shows markup as text."""
    page, figures = tmp_path / "r.html", tmp_path / "r.json"
    arguments = [f"--{name}={path}" for name, path in files.items()]

    result = CliRunner().invoke(app, ["intents", *arguments, f"--report={page}", f"--json={figures}"])

    assert result.exit_code == 0, result.output
    made = json.loads(figures.read_text())
    assert made["accuracy"] in {0.25, 0.5, 0.75, 1.0}
    assert (made["test_rows"], made["oos_rows"], made["labels"]) == (4, 5, 2)
    assert made["removed_rows"] == {"train": 1, "validation": 0}
    assert made["chosen_on"] == "held-out training rows"
    wanted = {
        "macro_f1",
        "ece",
        "coverage_at_risk",
        "risk",
        "oos_auroc",
        "oos_recall_at_95_inscope",
        "fit_seconds",
        "artifact_bytes",
        "peak_rss_mb",
    }
    assert wanted <= made.keys()
    assert made["latency_ms"]["p50"] > 0.0
    assert made["ece_by_chance"] > 0.0
    assert re.search(r"left out, text in a later set: train / val +│ +1 / 0 │", result.stdout)
    html = page.read_text()
    assert html.count("<svg") == 3
    assert "<script" not in html
    assert "<b>health" not in html


@pytest.mark.parametrize(
    ("act_above", "said", "unsaid"),
    [
        (0.0, "<b>100.0 %</b>acted on alone<br><small>50.0 % of those wrong; target 2.0 %", "proven"),
        (1.0, "<b>0.0 %</b>acted on alone<br><small>target 2.0 %", "proven"),
        (1.01, "<b>nothing proven</b>", "of those wrong"),
    ],
    ids=["proven", "proven, but no test row is as sure", "not proven"],
)
def test_the_page_says_what_was_proven(tmp_path: Path, encoder: Encoder, act_above: float, said: str, unsaid: str) -> None:
    """A threshold that was not found is no coverage of zero."""
    train, test, page = write(tmp_path / "a.jsonl", [(r.text, r.label) for r in TWO]), tmp_path / "b.jsonl", tmp_path / "r.html"
    write(test, [("did a service fail", "health_check"), ("is a service down", "gap_analysis")])
    measured = bench(train, None, test, None, encoder=encoder, risk_target=0.02, progress=lambda _: None)
    policy = POLICY.model_copy(update={"refuse_above": 1.0, "act_above": act_above})

    write_report(replace(measured, policy=policy), page, title="t")

    assert said in page.read_text()
    assert unsaid not in page.read_text()


def test_figures_can_go_to_standard_output(files: dict[str, Path]) -> None:
    """Nothing else is printed there."""
    result = CliRunner().invoke(app, ["intents", f"--train={files['train']}", f"--test={files['test']}", "--json=-"])

    assert json.loads(result.stdout)["oos_auroc"] is None


def test_a_catalogue_and_histories_give_their_figures(files: dict[str, Path], tmp_path: Path) -> None:
    """A label without a training row is told by its description, and a follow-up by what came before; rows of other labels are left out."""
    catalog, test = tmp_path / "catalog.json", tmp_path / "dialogues.jsonl"
    words = {"gap": "where sales lag their potential", "<b>health</b>": "whether services run", "music": "find songs and play music"}
    catalog.write_text(json.dumps([{"label": label, "description": text} for label, text in words.items()]))
    rows = [
        {"text": "play a song by Miles Davis", "label": "music"},
        {"text": "and for the Midwest?", "label": "gap", "history": [f"U: {GAP[0]}", "S: Two regions do."]},
    ]
    test.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with files["train"].open("a") as more:
        more.write('{"text": "book me a table", "label": "restaurant"}\n{"text": "a table for two", "label": "restaurant"}\n')

    result = CliRunner().invoke(app, ["intents", f"--train={files['train']}", f"--test={test}", f"--catalog={catalog}", "--json=-"])

    made = json.loads(result.stdout)
    assert made["labels"] == 3
    assert (made["accuracy_first"], made["accuracy_after"], made["accuracy_new"], made["top3_new"]) == (1.0, 1.0, 1.0, 1.0)


def test_a_row_is_timed_with_its_history(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its utterances are encoded within the time; a text without a history is read alone."""
    heard: list[str] = []

    class Listening(Encoder):
        def encode_short(self, texts: Iterable[str]) -> dict[str, Encoding]:
            heard.extend(kept := list(texts))
            return super().encode_short(kept)

    monkeypatch.setattr("optimizers.bench.Encoder", Listening)
    rows = [Row(GAP[4], "gap_analysis", None, (f"U: {GAP[0]}", "S: Two regions do.")), Row(HEALTH[4], "health_check")]

    taken = time_reading(fit(TWO, encoder).student, rows)

    assert heard == [GAP[0], "Two regions do."]
    assert 0.0 < taken["p50"] <= taken["p99"]


def test_another_encoder_reads_each_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the service: what histories weigh was learned on the packaged encoder's vectors, here of twice the length."""

    class Half(Encoder):
        def __init__(self, folder: Path | None = None, *, threads: int = 1) -> None:
            super().__init__(folder, threads=threads)
            self.name = "half"

        def encode(self, text: str) -> Encoding:
            return self.encode_many([text])[0]

        def encode_many(self, texts: Sequence[str], *, most: int = MAX_TOKENS) -> list[Encoding]:
            whole = super().encode_many(texts, most=most)
            return [Encoding(e.vector[: len(e.vector) // 2] * np.float32(2**0.5), e.tokens) for e in whole]

    monkeypatch.setattr("optimizers.bench.Encoder", Half)
    student = fit(TWO, Half()).student
    alone, after = Row(GAP[4], "gap_analysis"), Row(GAP[4], "gap_analysis", None, (f"U: {HEALTH[0]}", "S: Yes."))

    read = evaluate_once(student, [alone, after])

    assert read.probability[0] == read.probability[1]
    assert time_reading(student, [alone, after])["p50"] > 0.0


@pytest.mark.parametrize("described", [False, True], ids=["without a catalogue", "in another's catalogue"])
def test_a_label_that_nothing_tells_is_not_counted_as_told_by_description(files: dict[str, Path], tmp_path: Path, described: bool) -> None:
    """It is named as always wrong, in no figure of its own."""
    write(files["test"], [(GAP[4], "gap"), ("play a song", "music")])
    catalog = tmp_path / "catalog.json"
    catalog.write_text(json.dumps([{"label": label, "description": "x y z"} for label in ("gap", "<b>health</b>", "weather")]))
    options = [f"--train={files['train']}", f"--test={files['test']}", *([f"--catalog={catalog}"] if described else [])]

    shown = CliRunner().invoke(app, ["intents", *options, f"--json={tmp_path / 'r.json'}"]).stdout

    made = json.loads((tmp_path / "r.json").read_text())
    assert (made["accuracy"], made["accuracy_new"], made["top3_new"]) == (0.5, None, None)
    assert "by description" not in shown
    assert "all wrong: 'music'." in " ".join(shown.split())


def test_labels_and_texts_reach_the_terminal_as_text(files: dict[str, Path], tmp_path: Path) -> None:
    """Neither a control character nor markup of the table's is obeyed."""
    odd = ["[/red]", "\x1b[2Jwipe", "two\nlines", "\u202eturned"]
    write(files["test"], [(GAP[4], "gap"), *((f"did the \x1b[31m job fail {label}", label) for label in odd)])

    result = CliRunner().invoke(app, ["intents", f"--train={files['train']}", f"--test={files['test']}"], env={"COLUMNS": "400"})

    assert result.exit_code == 0
    assert all(c.isprintable() or c == "\n" for c in result.stdout)
    shown = " ".join(result.stdout.split())  # a terminal that is taken for a narrow one wraps
    assert all(f"1 x {label!r} read as '<b>health</b>': " in shown for label in odd)
    assert f"all wrong: {', '.join(map(repr, sorted(odd)))}." in shown


def test_a_few_rows_with_histories_are_enough(files: dict[str, Path]) -> None:
    """Thresholds are chosen on a held-out part that has an in-scope row, whichever comes first."""
    rows = [*((t, "oos") for t in OOS), *((t, "gap") for t in GAP[1:3]), *((t, "health") for t in HEALTH[:2])]
    files["train"].write_text("".join(json.dumps({"text": t, "label": label, "history": ["U: hello"]}) + "\n" for t, label in rows))

    result = CliRunner().invoke(app, ["intents", f"--train={files['train']}", f"--test={files['test']}", "--json=-"])

    assert json.loads(result.stdout)["coverage_at_risk"] == 0.0


BROKEN = {
    "no JSON": ("hello\n", "train.jsonl:1"),
    "no label": ('{"text": "a"}\n', "train.jsonl:1: the field 'label' is missing"),
    "a text that is no object": ('"text and label"\n', "train.jsonl:1: expected one JSON object"),
    "a number without end": ("9" * 5_000 + "\n", "train.jsonl:1: expected one JSON object"),
    "an empty text": ('{"text": "", "label": "a"}\n', "not empty"),
    "history of numbers": ('{"text": "a", "label": "a", "history": [1]}\n', "history"),
    "history that is a text": ('{"text": "a", "label": "a", "history": "before"}\n', "history"),
    "writer that is a list": ('{"text": "a", "label": "a", "writer": ["a"]}\n', "train.jsonl:1"),
    "half a surrogate pair": ('{"text": "\\ud800", "label": "a"}\n', "surrogate"),
    "one label": ('{"text": "a", "label": "a"}\n{"text": "b", "label": "a"}\n', "at least two labels"),
    "nothing": ("", "at least two labels"),
}


def test_testing_on_the_training_rows_is_refused(files: dict[str, Path]) -> None:
    """Every training row is taken out then, which is said."""
    result = CliRunner().invoke(app, ["intents", f"--train={files['test']}", f"--test={files['test']}"])

    assert result.exit_code == 2
    assert "texts are test texts too" in " ".join(result.stderr.split())


@pytest.mark.parametrize(("content", "said"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_cannot_be_used_is_named(files: dict[str, Path], content: str, said: str) -> None:
    """Exit code 2 and the place."""
    files["train"].write_text(content)

    result = CliRunner().invoke(app, ["intents", f"--train={files['train']}", f"--test={files['test']}"])

    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_a_catalogue_that_cannot_be_used_is_named_before_the_work(files: dict[str, Path], tmp_path: Path) -> None:
    """With the entry."""
    catalog = tmp_path / "catalog.json"
    catalog.write_text('[{"label": "gap", "description": "\\ud800"}]')

    result = CliRunner().invoke(app, ["intents", f"--train={files['train']}", f"--test={files['test']}", f"--catalog={catalog}"])

    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"{catalog}: entry 1: half of a surrogate pair")
    assert "encoding" not in result.stderr


def test_a_compressed_file_that_is_cut_off_is_named(files: dict[str, Path], tmp_path: Path) -> None:
    """Not a stack trace."""
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(b"\x1f\x8b\x08\x00broken")

    result = CliRunner().invoke(app, ["intents", f"--train={cut}", f"--test={files['test']}"])

    assert result.exit_code == 2
    assert "cut.jsonl.gz" in result.stderr.replace("\n", "")


@pytest.mark.parametrize("rows", [[], [("a poem", "oos")]], ids=["nothing", "out of scope only"])
def test_a_test_set_without_an_in_scope_row_is_refused_before_the_work(files: dict[str, Path], rows: list[tuple[str, str]]) -> None:
    """There is no accuracy to report."""
    write(files["test"], rows)

    result = CliRunner().invoke(app, ["intents", f"--train={files['train']}", f"--test={files['test']}"])

    assert result.exit_code == 2
    assert f"{files['test']} has no in-scope row" in result.stderr
    assert "encoding" not in result.stderr


@pytest.mark.parametrize("option", ["json", "report"])
@pytest.mark.parametrize(
    ("name", "said"),
    [(".", "is a folder"), ("none/x", "There is no folder"), ("train.jsonl/x", "There is no folder"), ("x" * 300, "cannot be written")],
    ids=["a folder", "in no folder", "in a file", "a name too long"],
)
def test_a_result_that_cannot_be_written_is_told_on_one_line(
    files: dict[str, Path], tmp_path: Path, option: str, name: str, said: str
) -> None:
    """Before minutes of fitting where that can be known, else after the figures were shown."""
    arguments = ["intents", f"--train={files['train']}", f"--test={files['test']}", f"--{option}={tmp_path / name}"]

    result = CliRunner().invoke(app, arguments)

    assert (result.exit_code, type(result.exception)) == (2, SystemExit)
    assert said in result.stderr.splitlines()[-1]
    assert ("fitting" in result.stderr) is ("accuracy" in result.stdout) is (said == "cannot be written")


@pytest.mark.parametrize("name", ["new.json", "old.json"])
def test_a_result_without_permission_is_told_before_the_work(
    files: dict[str, Path], tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the file where there is one, else of its folder."""
    (tmp_path / "old.json").touch()
    asked = tmp_path / name if name == "old.json" else tmp_path
    monkeypatch.setattr("os.access", lambda path, mode: not (mode == os.W_OK and Path(path) == asked))  # root may write anywhere

    result = CliRunner().invoke(app, ["intents", f"--train={files['train']}", f"--test={files['test']}", f"--json={tmp_path / name}"])

    assert result.exit_code == 2
    assert result.stderr == f"There is no permission to write {tmp_path / name}.\n"
