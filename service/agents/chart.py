"""Vega-Lite v5 specifications with inline data, and tables. A chart carries fewer than 200 rows."""

from collections.abc import Mapping, Sequence

from service.agents.finding import plain

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
MOST_ROWS = 199

Row = Mapping[str, object]
Spec = dict[str, object]


def bar_chart(kind: str, title: str, rows: Sequence[Row], *, value: str, label: str, color: str | None = None) -> Spec:
    """Return horizontal bars of `value` by `label`, in the order of the rows."""
    encoding: Spec = {
        "x": {"field": value, "type": "quantitative", "title": _caption(value)},
        "y": {"field": label, "type": "nominal", "sort": None, "title": None},
    }
    if color is not None:
        encoding["color"] = {"field": color, "type": "nominal", "title": _caption(color)}
    return {**_head(kind, title, rows), "mark": {"type": "bar", "tooltip": True}, "encoding": encoding}


def interval_chart(kind: str, title: str, rows: Sequence[Row], *, label: str, value: str) -> Spec:
    """Return points with intervals: each row has `label`, `value`, `low` and `high`."""
    y = {"field": label, "type": "nominal", "sort": None, "title": None}
    return {
        **_head(kind, title, rows),
        "layer": [
            {
                "mark": {"type": "rule"},
                "encoding": {"y": y, "x": {"field": "low", "type": "quantitative", "title": _caption(value)}, "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "tooltip": True},
                "encoding": {"y": y, "x": {"field": value, "type": "quantitative"}},
            },
        ],
    }


def forecast_chart(title: str, rows: Sequence[Row]) -> Spec:
    """Return a line over weeks with a band: each row has `week_end`, `series`, `value`, and where known `low` and `high`."""
    x = {"field": "week_end", "type": "temporal", "title": "week ending"}
    return {
        **_head("forecast", title, rows),
        "layer": [
            {
                "mark": {"type": "area", "opacity": 0.25},
                "encoding": {"x": x, "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "line", "tooltip": True},
                "encoding": {
                    "x": x,
                    "y": {"field": "value", "type": "quantitative", "scale": {"zero": False}},
                    "color": {"field": "series", "type": "nominal", "title": None},
                },
            },
        ],
    }


def table(title: str, rows: Sequence[Row]) -> Spec:
    """Return a table: the columns are the keys of the first row."""
    columns = list(rows[0]) if rows else []
    return {"title": title, "columns": columns, "rows": [[plain(row.get(column)) for column in columns] for row in rows]}


def _head(kind: str, title: str, rows: Sequence[Row]) -> Spec:
    values = [plain(row) for row in rows[:MOST_ROWS]]
    return {"$schema": SCHEMA, "title": title, "usermeta": {"kind": kind}, "width": 480, "data": {"values": values}}


def _caption(field: str) -> str:
    return field.replace("_", " ")
