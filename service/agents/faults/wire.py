"""One TCP connection: requests are read with h11; answers are written properly, or byte by byte as a fault needs it. It knows no fault."""

import asyncio
import socket
import struct
from dataclasses import dataclass
from http.client import responses

import h11

from service.agents.app import LARGEST_BODY

READ_BYTES = 65_536
GOODBYE_SECONDS = 1.0  # for a client to take what is left of its answer
JSON = (("Content-Type", "application/json"),)
_BODILESS = frozenset({204, 304})
_MOST_PIECES = 2_000  # of an answer that drips: more would cost the server more than the client


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived; the names of its headers are in lower case."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def agent(self) -> str | None:
        """The agent whose address this is, or None where it is another address."""
        name = self.path.partition("?")[0].removeprefix("/agents/")
        return name if self.method == "POST" and name != self.path and name and "/" not in name else None

    def header(self, name: str) -> str | None:
        """Return the first header of that name (lower case), or None."""
        return next((value for known, value in self.headers if known == name), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """A proper HTTP answer. `Content-Length` is added when it is written."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = JSON

    def head(self, *more: tuple[str, str]) -> bytes:
        """Return the head as bytes, with further headers and without `Content-Length`."""
        fields = "".join(f"{name}: {value}\r\n" for name, value in (*self.headers, *more))
        return f"HTTP/1.1 {self.status} {responses.get(self.status, '')}\r\n{fields}\r\n".encode("latin-1")

    def sized_head(self) -> bytes:
        """Return the head as bytes, with the `Content-Length` of the whole body."""
        return self.head(("Content-Length", str(len(self.body))))

    def whole(self) -> bytes:
        """Return head and body as bytes, as they are proper."""
        return self.sized_head() + self.body


class Connection:
    """The server's end of one connection.

    After an answer by `write` it must be closed, unless `go_on` says that the client may ask again.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection that was accepted."""
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)
        self._method = b""
        self.is_usable = True

    async def next_request(self) -> Request | None:
        """Return the next request, or None when the client has closed or has sent something that is none.

        Raises:
            ConnectionError: the client has broken the connection.
        """
        request: h11.Request | None = None
        body = bytearray()
        try:
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    if self._http.they_are_waiting_for_100_continue:
                        await self.write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
                    self._http.receive_data(await self._reader.read(READ_BYTES))
                elif isinstance(event, h11.Request):
                    request, self._method = event, event.method
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > LARGEST_BODY + 1:
                        await self._refuse_to_read(413)
                        return None
                elif isinstance(event, h11.EndOfMessage) and request is not None:
                    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers)
                    return Request(request.method.decode(), request.target.decode("latin-1"), headers, bytes(body))
                else:
                    return None
        except h11.RemoteProtocolError as problem:
            await self._refuse_to_read(problem.error_status_hint)
            return None

    async def respond(self, answer: Answer) -> None:
        """Write a proper answer. The connection stays usable where the client wants that.

        Raises:
            ConnectionError: the client has broken the connection.
        """
        headers = [*answer.headers, ("Content-Length", str(len(answer.body)))] if answer.status not in _BODILESS else list(answer.headers)
        head = h11.Response(status_code=answer.status, headers=headers, reason=responses.get(answer.status, ""))
        sent = self._http.send(head) or b""
        if answer.body and answer.status not in _BODILESS and self._method != b"HEAD":
            sent += self._http.send(h11.Data(data=answer.body)) or b""
        sent += self._http.send(h11.EndOfMessage()) or b""
        await self.write(sent)
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self.is_usable = False

    async def write(self, data: bytes) -> None:
        """Write bytes as they are.

        Raises:
            ConnectionError: the client has broken the connection.
        """
        self._writer.write(data)
        await self._writer.drain()

    async def drip(self, data: bytes, seconds: float) -> None:
        """Write bytes one by one, spread over a time. More than two thousand go in pieces.

        Raises:
            ConnectionError: the client has broken the connection.
        """
        clock, size = asyncio.get_running_loop().time, -(-len(data) // _MOST_PIECES) or 1
        began = clock()
        for start in range(0, len(data), size):
            await self.write(data[start : start + size])
            await asyncio.sleep(began + seconds * min(1.0, (start + size) / len(data)) - clock())

    def close(self) -> None:
        """Close properly, after what was written."""
        self.is_usable = False
        self._writer.close()

    def reset(self) -> None:
        """Break the connection: the client gets a TCP reset, and nothing that it has not read yet is sure to arrive."""
        self.is_usable = False
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() then sends RST instead of FIN
        self._writer.transport.abort()

    def go_on(self) -> None:
        """Read the next request although what was written was no proper answer to the last one."""
        early, _ = self._http.trailing_data
        self._http = h11.Connection(h11.SERVER)
        if early:
            self._http.receive_data(early)

    async def left(self) -> None:
        """Return when the client has left. What it sends meanwhile is kept for `next_request`."""
        try:
            while data := await self._reader.read(READ_BYTES):
                self._http.receive_data(data)
        except ConnectionError:
            return

    async def end(self) -> None:
        """Close, with a moment for the client to take what is left; then break off."""
        self._writer.close()
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._writer.wait_closed()
        except (TimeoutError, ConnectionError):
            self._writer.transport.abort()
        except asyncio.CancelledError:
            self._writer.transport.abort()
            raise

    def abort(self) -> None:
        """Drop the connection with all that was not sent yet."""
        self._writer.transport.abort()

    async def _refuse_to_read(self, status: int) -> None:
        self.is_usable = False
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            await self.respond(Answer(b"", status, (("Connection", "close"),)))
