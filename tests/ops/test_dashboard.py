"""The dashboard: what the generator makes, laid out as a request goes, and asking only for what there is."""

import subprocess
import sys
from itertools import combinations
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.ops.conftest import MONITORING
from tests.ops.promql import DASHBOARD, EXPRESSIONS, PANELS, groupings, known, panel_queries, selectors

ORDER = ["Time by stage", "Objectives", "Arrival", "Decision", "Language model", "Dispatch", "Answer", "Learning", "Regions", "Router"]
WIDTH = 24


def test_the_committed_dashboard_is_what_the_generator_makes() -> None:
    """Byte by byte: nobody edits it by hand. `make dashboard` writes it anew."""
    code = "from scripts.make_dashboard import make; import sys; sys.stdout.write(make())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == (MONITORING / "dashboard.json").read_text()


def test_the_rows_follow_the_path_of_a_request() -> None:
    """The time by stage is what one sees first; every row has panels."""
    rows = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    kinds = "".join("r" if panel["type"] == "row" else "p" for panel in DASHBOARD["panels"])

    assert [title in row["title"] for title, row in zip(ORDER, rows, strict=True)] == [True] * len(ORDER)
    assert [row["gridPos"]["y"] for row in rows] == sorted(row["gridPos"]["y"] for row in rows)
    assert kinds.startswith("rp")
    assert "rr" not in kinds
    assert "stage_seconds" in panel_queries()[0][1]


def test_no_panel_lies_on_another_and_no_line_has_a_hole() -> None:
    """Each line of the grid is filled from the left to the right edge."""
    boxes: list[dict[str, int]] = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    lines: dict[int, int] = {}
    for box in boxes:
        lines[box["y"]] = lines.get(box["y"], 0) + box["w"]

    def apart(a: dict[str, int], b: dict[str, int]) -> bool:
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        return beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]

    assert [(a, b) for a, b in combinations(boxes, 2) if not apart(a, b)] == []
    assert set(lines.values()) == {WIDTH}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_can_be_read(panel: dict[str, Any]) -> None:
    """It has a title, a unit, the chosen source, and a legend for each query."""
    assert panel["title"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert all(target["legendFormat"] for target in panel["targets"])
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@pytest.mark.parametrize(("title", "query"), panel_queries(), ids=[f"{title}-{n}" for n, (title, _) in enumerate(panel_queries())])
def test_a_panel_asks_for_metrics_and_labels_that_there_are(title: str, query: str) -> None:
    """And for those of the chosen installations only."""
    there, read = known(), selectors(query)

    assert [one.text for one in read if not one.labels <= there.get(one.name, set())] == []
    assert groupings(query) <= set[str]().union(*(there[one.name] for one in read), {"severity"})
    assert all({"namespace", "job"} <= one.labels for one in read)


def test_every_metric_of_the_service_is_on_the_dashboard_or_in_a_rule() -> None:
    """What nobody can see need not be counted."""
    seen = {one.name for _, query in panel_queries() for one in selectors(query)}
    seen |= {one.name for expression in EXPRESSIONS.values() for one in selectors(expression)}
    counted = {name for name in known() if ":" not in name}

    assert {_family(name) for name in counted} == {_family(name) for name in seen if ":" not in name}


def _family(name: str) -> str:
    return name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
