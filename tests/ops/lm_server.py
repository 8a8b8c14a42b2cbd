"""A scripted LM behind OpenAI's wire format: it takes the first name that it is offered, and fails now and then."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

FAILS = 5  # one of so many requests gets 500; the breaker opens after three in a row


class Scripted(BaseHTTPRequestHandler):
    """Answers any prompt of the service with all fields that one of its programs could want."""

    numbers = count(1)
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a chat completion."""
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if next(self.numbers) % FAILS == 0:
            self._send(500, {"error": {"message": "scripted"}})
            return
        said = {name: (re.findall(rf"{name} is one of: (\w+)", asked) or [""])[-1] for name in ("intent", "primary_agent")}
        said |= {"sub_intent": "scripted", "routing_rationale": "scripted", "response_text": "It is as the agents say."}
        numbers = {"confidence": 0.9, "routing_confidence": 0.9, "secondary_agents": []}
        choice = {"index": 0, "message": {"role": "assistant", "content": json.dumps(said | numbers)}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        self._send(200, {"id": "1", "object": "chat.completion", "model": "scripted", "choices": [choice], "usage": usage})

    def log_message(self, format: str, *args: object) -> None:  # the name is http.server's
        """Say nothing."""

    def _send(self, status: int, body: dict[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def scripted_lm() -> Iterator[str]:
    """Serve it on a free port; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
