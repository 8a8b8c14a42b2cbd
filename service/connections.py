"""uvicorn's HTTP connection with eight gaps closed. It knows no route.

uvicorn waits for the head of a request for ever, and so keeps whoever sends half a line or nothing; here such a connection ends like an
idle one. It takes a head of any length, from anybody, before it is known who sends it; here it has a bound. Of several requests that came
in one packet (HTTP pipelining) uvicorn tells only the last that the caller has left; the one under way would go on, and break on the closed
socket as an error of the service. And at the service's end uvicorn closes idle connections at once, on which a request may be on its way;
here they stay for a moment, and answers say goodbye. What is no HTTP uvicorn refuses in plain text, and at once, even where the answer to
an earlier request is owed, whose sender would take the refusal for it; here it is a problem like any other, and answers keep their order
(RFC 9112, 9.3.2). Where a request asks for another protocol (`Upgrade`, as Java's client does unasked) the parser stops after its head, and
the body would be lost or, in a packet of its own, be read as the next request; here such a wish is passed over (RFC 9110, 7.8). And what
follows the last chunk of a body (trailers) would be taken for headers, without a bound; here it is dropped (RFC 9110, 6.5.1), and bounded.
"""

import asyncio
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.api.middleware import GUARDS, REQUEST_ID
from service.api.problems import MEDIA_TYPE, describe
from service.errors import HeadTooLarge, InvalidInput, PointsmanError

# Bytes of a request line with its headers, or of what is around a body, that may come in a row; nginx takes 32 KiB, Node.js 16.
MOST_HEAD = 65_536
LINGER_SECONDS = 1.0  # that a connection stays: at the end of the service, as it may be in use; after a refusal, so that it is read
CLOSE = (b"connection", b"close")
CONNECT = b"CONNECT"
NO_HTTP = "What was sent is no HTTP/1.1 request."


class Connection(HttpToolsProtocol):
    """One connection. Nothing that the caller does or leaves undone keeps it open for longer than the keep-alive time between requests."""

    _head_due: asyncio.TimerHandle | None = None
    _under_way: RequestResponseCycle | None = None
    _bare_bytes = 0  # that have come since the last piece of a body or end of a message
    _pieces = 0  # pieces of bodies and ends of messages so far
    _in_head = True
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless something was refused; refuse a head, or what is around a body, that is too long."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        before = self._pieces
        try:
            self._parse(memoryview(data))
        except httptools.HttpParserError:
            self._refuse(InvalidInput(NO_HTTP))
        if self._pieces == before and not self._refused:
            self._bare_bytes += len(data)
            if self._bare_bytes > MOST_HEAD:
                self._refuse(HeadTooLarge(f"The request line and headers have more than {MOST_HEAD} bytes."))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what comes after a body is none."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop waiting."""
        self._stop_waiting()
        if self.parser.should_upgrade() and self.parser.get_method() != CONNECT:
            return  # it is read anew, as one that does not
        super().on_headers_complete()  # which may find that there is something wrong with the head
        self._in_head = False

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._piece_came()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expect another head."""
        if self._in_head:  # that of one that is read anew
            return
        self._in_head = True
        self._piece_came()
        super().on_message_complete()

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

    def _parse(self, data: memoryview) -> None:
        """Take bytes of requests.

        Raises:
            httptools.HttpParserError: they are of none.
        """
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as stopped:
                data = data[stopped.args[0] :]
            if self.parser.get_method() == CONNECT:  # nothing that follows is a request
                self.cycle.keep_alive = False
                self._refused = True
                return
            method, version = self.parser.get_method(), self.parser.get_http_version().encode()
            fields = [b"%s: %s\r\n" % field for field in self.headers if field[0] != b"upgrade"]
            head = b"%s %s HTTP/%s\r\n%s\r\n" % (method, self.url, version, b"".join(fields))
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
            self.parser.feed_data(head)

    def _piece_came(self) -> None:
        self._pieces += 1
        self._bare_bytes = 0

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401  (an ASGI app, of which uvicorn's type is private)
        self._under_way = cycle
        super()._start_asgi_task(cycle, app)

    def _refuse(self, error: PointsmanError) -> None:
        """Answer what cannot be read, unless answers to earlier requests are owed, and end the connection after it or them.

        What comes is taken for a moment more, or the answer would not arrive.
        """
        self._refused = True
        broken = None if self._in_head else self.cycle
        if broken is not None and self.pipeline:  # it waits for those before it
            broken, _ = None, self.pipeline.popleft()
        last = self.pipeline[0][0] if self.pipeline else self._under_way
        if last is not None and last is not broken and not last.response_complete:
            last.keep_alive = False
            return
        if broken is None or not broken.response_started:
            self.transport.write(_answer(error))
        if broken is not None:
            broken.disconnected = True
            broken.message_event.set()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _await_head(self) -> None:
        self._stop_waiting()
        self._head_due = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None


def _answer(error: PointsmanError) -> bytes:
    """Return a problem as a whole answer that ends the connection."""
    request_id = uuid4().hex
    body = describe(error, request_id=request_id).model_dump_json(exclude_none=True).encode()
    fields = ((REQUEST_ID.lower().encode(), request_id.encode()), (b"content-type", MEDIA_TYPE.encode()), CLOSE)
    lines = [b"%s: %s\r\n" % field for field in (*GUARDS, *fields, (b"content-length", b"%d" % len(body)))]
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (error.status, HTTPStatus(error.status).phrase.encode(), b"".join(lines), body)
