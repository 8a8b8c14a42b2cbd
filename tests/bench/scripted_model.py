"""A model that answers at once, behind OpenAI's chat API: `python -m tests.bench.scripted_model PORT`.

Asked to choose among names, as the service's programs ask, it takes the first; it thinks nothing, so that only what lies around it is seen.
"""

import json
import re
import sys

from aiohttp import web

CHOICE = re.compile(r"(\w+) is one of: (\w+)")
INTENT = {"sub_intent": "as scripted", "confidence": 0.9}
ROUTING = {"secondary_agents": [], "routing_confidence": 0.9, "routing_rationale": "as scripted"}


def reply(prompt: str) -> str:
    """Return what is said to a prompt."""
    choice = CHOICE.search(prompt)
    if choice is None:
        return "As scripted."
    field, first = choice.groups()
    return json.dumps({field: first} | (ROUTING if field == "primary_agent" else INTENT))


async def answer(request: web.Request) -> web.Response:
    """Answer a chat completion."""
    asked = await request.json()
    message = {"role": "assistant", "content": reply(asked["messages"][-1]["content"])}
    said = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": asked["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
    }
    return web.json_response(said)


def main() -> None:
    """Serve until the process is ended."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)


if __name__ == "__main__":
    main()
