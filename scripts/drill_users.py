"""Users for a drill: they ask a running service what the seed set has, and say where they should have been sent. See docs/learning.md."""

import argparse
import json
import os
import random
import sys
from pathlib import Path
from uuid import UUID

import httpx

SEED_SET = Path(__file__).parents[1] / "datasets" / "seed"
HAPPY, UNHAPPY = 5, 2  # of five stars


def main() -> int:
    """Ask, rate, print how many reached the right agent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=600, help="questions to ask")
    parser.add_argument("--seed", type=int, default=1, help="another one asks other questions")
    parser.add_argument("--url", default=f"http://127.0.0.1:{os.environ.get('POINTSMAN_PORT', '8100')}", help="the service")
    said = parser.parse_args()
    draws = random.Random(said.seed)
    try:
        with httpx.Client(base_url=said.url, timeout=60.0, trust_env=False) as client:
            _ask(client, draws, said.count)
    except httpx.HTTPError as exc:
        print(f"{said.url}: {exc}. Is the service running? pointsman run", file=sys.stderr)  # noqa: T201  # a command's output
        return 2
    return 0


def _ask(client: httpx.Client, draws: random.Random, count: int) -> None:
    agent_of = {intent["name"]: intent["primary_agent"] for intent in client.get("/intents").raise_for_status().json()}
    rows = [json.loads(line) for file in sorted(SEED_SET.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines()]
    asked = draws.sample([row for row in rows if row["label"] in agent_of], count)
    reached = 0
    for number, row in enumerate(asked, 1):
        query_id, agent = str(UUID(int=draws.getrandbits(128), version=4)), agent_of[row["label"]]
        body = {"parsed_query": {"query_id": query_id, "raw_query": row["text"]}, "user_id": "drill", "session_id": query_id}
        answer = client.post("/orchestrate", json=body).raise_for_status().json()
        right = agent in answer["agents_dispatched"]
        reached += right
        opinion = {"user_satisfaction": HAPPY} if right else {"user_satisfaction": UNHAPPY, "corrected_agent": agent}
        client.post("/feedback", json={"query_id": query_id, **opinion}).raise_for_status()
        if number % 100 == 0 or number == count:
            print(f"{number} asked, {reached} of them reached the right agent", flush=True)  # noqa: T201  # a command's output


if __name__ == "__main__":
    sys.exit(main())
