"""uvicorn's HTTP connection with four gaps closed. It knows no route.

uvicorn waits for the head of a request for ever, and so keeps whoever sends half a line or nothing; here such a connection ends like an
idle one. It takes a head of any length, from anybody, before it is known who sends it; here it has a bound. Of several requests that came
in one packet (HTTP pipelining) uvicorn tells only the last that the caller has left; the one under way would go on, and break on the closed
socket as an error of the service. And at the service's end uvicorn closes idle connections at once, on which a request may be on its way;
here they stay for a moment, and answers say goodbye.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MOST_HEAD = 65_536  # bytes of a request line with its headers that may have come before their end; nginx takes 32 KiB, Node.js 16
TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
LINGER_SECONDS = 1.0  # that a connection stays: at the end of the service, as it may be in use; after a refusal, so that it is read
CLOSE = (b"connection", b"close")


class Connection(HttpToolsProtocol):
    """One connection. Nothing that the caller does or leaves undone keeps it open for longer than the keep-alive time between requests."""

    _head_due: asyncio.TimerHandle | None = None
    _under_way: RequestResponseCycle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take what has come; refuse a head that is too long, and read on for a moment, or the refusal would not arrive."""
        if self._head_bytes > MOST_HEAD:
            return
        super().data_received(data)
        if self._head_due is not None:  # its end has not come yet
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD and not self.transport.is_closing():
                self.transport.write(TOO_LONG)
                self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def on_headers_complete(self) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next head, unless it is there already."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request under way, too, that its caller has left."""
        self._stop_waiting()
        if self._under_way is not None and not self._under_way.response_complete:
            self._under_way.disconnected = True
            self._under_way.message_event.set()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End the connection after the request that it has, or else after the one that comes now."""
        if CLOSE not in self.server_state.default_headers:
            self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(LINGER_SECONDS, super().shutdown)
        else:
            super().shutdown()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401  (an ASGI app, of which uvicorn's type is private)
        self._under_way = cycle
        super()._start_asgi_task(cycle, app)

    def _await_head(self) -> None:
        self._stop_waiting()
        self._head_bytes = 0
        self._head_due = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None
