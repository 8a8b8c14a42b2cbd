"""Users for a drill: they ask a running service what the seed set has, and say where they should have been sent. See docs/learning.md.

Who is asked back before an agent changes something is content if it is the right one. Each round asks other questions.
"""

import argparse
import json
import os
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import httpx

SEED_SET = Path(__file__).parents[1] / "datasets" / "seed"
HAPPY, UNHAPPY = 5, 2  # of five stars
OUT_OF_SCOPE = "oos"
SEED = 1


def main() -> int:
    """Ask, rate, print how many reached the right agent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=600, help="questions to ask in a round (default 600)")
    parser.add_argument("--round", type=int, default=1, help="1, 2 and so on: another one asks other questions")
    parser.add_argument("--url", default=f"http://127.0.0.1:{os.environ.get('POINTSMAN_PORT', '8100')}", help="the service")
    said = parser.parse_args()
    rows = [json.loads(line) for file in sorted(SEED_SET.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["label"] != OUT_OF_SCOPE]
    random.Random(SEED).shuffle(rows)
    asked = rows[max(0, said.round - 1) * said.count : said.round * said.count]
    if said.count < 1 or said.round < 1 or len(asked) < said.count:
        parser.error(f"there are {len(rows)} questions: --count and --round are at least 1, and --round times --count at most that")
    try:
        key = os.environ.get("POINTSMAN_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with httpx.Client(base_url=said.url, timeout=60.0, trust_env=False, headers=headers) as client:
            _ask(client, asked)
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        print(f"{said.url}: {exc}. Is the service running? pointsman run", file=sys.stderr)  # noqa: T201  # a command's output
        return 2
    except (ValueError, KeyError, TypeError) as exc:
        text = f"{said.url} is no Pointsman with the packaged catalogue, which the seed set is for ({type(exc).__name__}: {exc})."
        print(text, file=sys.stderr)  # noqa: T201  # a command's output
        return 2
    return 0


def _ask(client: httpx.Client, asked: Sequence[Mapping[str, str]]) -> None:
    agent_of = {intent["name"]: intent["primary_agent"] for intent in client.get("/intents").raise_for_status().json()}
    changing = {agent["name"] for agent in client.get("/agents").raise_for_status().json() if not agent["idempotent"]}
    reached = 0
    for number, row in enumerate(asked, 1):
        query_id, agent = str(uuid4()), agent_of[row["label"]]
        body = {"parsed_query": {"query_id": query_id, "raw_query": row["text"]}, "user_id": "drill", "session_id": query_id}
        answer = client.post("/orchestrate", json=body).raise_for_status().json()
        asked_first = agent in changing and (answer["action"], answer["intent"]) == ("clarify", row["label"])
        right = agent in answer["agents_dispatched"] or asked_first
        reached += right
        opinion = {"user_satisfaction": HAPPY} if right else {"user_satisfaction": UNHAPPY, "corrected_agent": agent}
        client.post("/feedback", json={"query_id": query_id, **opinion}).raise_for_status()
        if number % 100 == 0 or number == len(asked):
            print(f"{number} asked, {reached} of them reached the right agent", flush=True)  # noqa: T201  # a command's output


if __name__ == "__main__":
    sys.exit(main())
