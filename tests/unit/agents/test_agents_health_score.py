"""health_score finds the faults that are in the data, and its score is the weighted mean that it says it is."""

import dataclasses
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import httpx
import numpy as np
import pytest

from service.agents.finding import Finding
from service.agents.health_check import check_addresses, check_completeness, check_freshness, check_ranges
from service.agents.process_state import memory_limit_bytes, resident_bytes, uptime_seconds
from service.agents.sample_data import Snapshot, generate_snapshot

Ask = Callable[..., Finding]


@pytest.fixture(autouse=True)
def no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health addresses of the machine that runs the tests do not count."""
    monkeypatch.delenv("POINTSMAN_HEALTH_URLS", raising=False)


@pytest.fixture(scope="module")
def fresh() -> Snapshot:
    """Data as of today."""
    return generate_snapshot(today=date.today())


def everyone(data: Snapshot) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a mask of all HCPs."""
    return np.ones(len(data.hcps), dtype=bool)


def test_the_documented_faults_are_reported(ask: Ask, fresh: Snapshot) -> None:
    """24 missing panel sizes and 12 negative sample counts are in the evidence."""
    text = " ".join(ask("health_score", on=fresh).evidence)

    assert "panel_size for 24" in text
    assert "samples below 0 in 12" in text


def test_the_score_is_the_weighted_mean_of_its_components(ask: Ask, fresh: Snapshot) -> None:
    """Done again from the components; what was not measured has no weight."""
    finding = ask("health_score", on=fresh)
    found: dict[str, Any] = dict(finding.primary_output)
    measured = [row for row in found["components"] if row["score"] is not None]

    assert found["score"] == pytest.approx(
        sum(row["weight"] * row["score"] for row in measured) / sum(row["weight"] for row in measured), abs=1e-4
    )
    assert finding.confidence == pytest.approx(sum(row["weight"] for row in measured))
    assert any("dependencies was not measured" in caveat for caveat in finding.caveats)


@pytest.mark.parametrize(("age", "score"), [(1, 1.0), (10, 1.0), (24, 0.5), (38, 0.0), (400, 0.0)])
def test_old_data_lose_their_freshness(data: Snapshot, age: int, score: float) -> None:
    """10 days are fresh, 38 are not, and between them it falls evenly."""
    assert check_freshness(data, data.week_ends[-1] + timedelta(days=age)).score == pytest.approx(score)


def test_stale_data_are_not_called_healthy(ask: Ask, fresh: Snapshot) -> None:
    """The same data, a year old, lose a quarter of the weight."""
    stale = generate_snapshot(today=date.today() - timedelta(days=365))

    assert ask("health_score", on=fresh).primary_output["grade"] == "healthy"
    assert ask("health_score", on=stale).primary_output["grade"] != "healthy"


def test_missing_attributes_and_weeks_lower_completeness(data: Snapshot) -> None:
    """A tenth of the HCPs without potential costs a tenth; a hole in the calendar is seen."""
    holed = data.hcps.copy()
    holed.loc[: len(holed) // 10 - 1, "potential"] = np.nan
    broken = dataclasses.replace(data, hcps=holed)
    gap = dataclasses.replace(data, week_ends=tuple(week - timedelta(days=7 * (at < 52)) for at, week in enumerate(data.week_ends)))

    assert check_completeness(broken, everyone(broken)).score == pytest.approx(0.9, abs=0.012)
    assert "1 of 104 weeks" in check_completeness(gap, everyone(gap)).sentence


def test_impossible_values_lower_the_ranges(data: Snapshot) -> None:
    """TRx above the market's in one week of every HCP are 1 in 104: more than 1 %, so nothing is left of the score."""
    wrong = np.array(data.weekly["trx"])
    wrong[0] = data.weekly["market_trx"][0] + 1
    component = check_ranges(dataclasses.replace(data, weekly={**data.weekly, "trx": wrong}), everyone(data))

    assert component.score == pytest.approx(1.0 - (1 / 104) / 0.01, abs=1e-6)
    assert "trx above market_trx in 2400" in component.sentence


def test_addresses_are_asked_and_their_secrets_not_shown() -> None:
    """One answers, one is broken, one refuses the connection, one is no address."""

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.host == "down":
            raise httpx.ConnectError("refused")
        return httpx.Response(200 if request.url.host == "up" else 503)

    urls = ["http://up/healthz", "http://user:secret@broken/healthz?token=secret", "http://down/healthz", "http://[::bad"]
    component = check_addresses(urls, 1.0, httpx.MockTransport(respond))

    assert component.score == 0.25
    assert "http://broken/healthz: status 503" in component.sentence
    assert "ConnectError" in component.sentence
    assert "secret" not in component.sentence


def test_configured_addresses_count_in_the_score(ask: Ask, fresh: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dependency that cannot be reached lowers the score, and makes it fully measured."""
    healthy = ask("health_score", on=fresh)
    monkeypatch.setenv("POINTSMAN_HEALTH_URLS", "nonsense://x, http://[::bad")
    unreachable = ask("health_score", on=fresh)

    assert unreachable.primary_output["score"] < healthy.primary_output["score"]  # type: ignore[operator]
    assert unreachable.primary_output["grade"] != "healthy"
    assert unreachable.confidence > healthy.confidence


def test_the_process_state_is_plausible_where_it_can_be_read() -> None:
    """A test process with pandas uses more than 20 MiB and less than the limit, and has been up for a while."""
    used, limit, uptime = resident_bytes(), memory_limit_bytes(), uptime_seconds()

    assert used is None or limit is None or 20 * 2**20 < used < limit
    assert uptime is None or 0.0 < uptime < 24 * 3600
