"""HTTP spoken byte by byte over a socket, so that a server can be lied to, trickled at and hung up on."""

import asyncio
import contextlib

import httpx

from tests.contract.hostile import SECONDS


async def exchange(port: int, *parts: bytes, hang_up: bool = False, pause: float = 0.0, seconds: float = SECONDS) -> bytes:
    """Send parts over one connection and return the first answer, or what came of it until the server had nothing more to say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        for part in parts if pause else [b"".join(parts)]:  # in one piece: what arrives after a server has closed can cost its answer
            with contextlib.suppress(ConnectionError):
                writer.write(part)
                await writer.drain()
            await asyncio.sleep(pause)
        if hang_up:
            writer.write_eof()
        received = b""
        with contextlib.suppress(ConnectionError):
            received = await asyncio.wait_for(next_answer(reader), seconds)
        return received
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def next_answer(reader: asyncio.StreamReader) -> bytes:
    """Return the next answer whole, its chunks joined, or nothing where the connection was closed without one."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 100 "):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as exc:
        return exc.partial
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    if lengths:
        return head + await reader.readexactly(int(lengths[0]))
    if b"chunked" not in head.lower():
        return head + await reader.read()
    content = bytearray()
    while size := int(await reader.readuntil(b"\r\n"), 16):
        content += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return head + bytes(content)


def parsed(answer: bytes) -> tuple[int, httpx.Headers, str]:
    """Take an HTTP answer apart."""
    head, _, content = answer.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    pairs = [line.partition(b": ")[::2] for line in lines]
    return int(status.split(b" ")[1]), httpx.Headers([(k, v) for k, v in pairs]), content.decode()


def head(*lines: str, target: str = "POST /orchestrate HTTP/1.1") -> bytes:
    """Return the head of a request."""
    return "\r\n".join([target, "Host: localhost", "Content-Type: application/json", *lines, "", ""]).encode("latin-1")


def chunked(*chunks: bytes) -> bytes:
    """Return a body in chunks, but for the last one."""
    return b"".join(f"{len(c):x}\r\n".encode() + c + b"\r\n" for c in chunks)
