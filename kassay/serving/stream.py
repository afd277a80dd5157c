"""One HTTP/1.1 POST on loopback whose answer is a stream of server-sent events, read as it comes.

A connection of its own for every request, so that no failure reaches another one; the time to connect is part of every
time that is measured. A body may come chunked, with a length, or until the server closes; one that ends early is an
error, never a short answer.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

LONGEST_LINE = 2**20
LOOPBACK = ("127.0.0.1", "localhost", "::1")
DONE = "[DONE]"
ERROR_BYTES = 2000  # of an error's body that are read


class StreamError(Exception):
    """A request that failed; `error` is its class, one word."""

    def __init__(self, error: str, detail: str = "", http_status: int | None = None) -> None:
        super().__init__(detail or error)
        self.error = error
        self.http_status = http_status


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long a client waits before a request has failed."""

    connect_s: float
    stall_s: float  # without a byte
    request_s: float  # from start to end


class Reader:
    """The response of one connection."""

    def __init__(self, source: asyncio.StreamReader, stall_s: float) -> None:
        self.source = source
        self.stall_s = stall_s
        self.headers: dict[str, str] = {}

    async def line(self) -> bytes:
        """A line without its end. Raises StreamError where there is none."""
        try:
            async with asyncio.timeout(self.stall_s):
                found = await self.source.readline()
        except TimeoutError:
            raise StreamError("stalled", f"no byte for {self.stall_s:g} s") from None
        except ValueError:
            raise StreamError("malformed", f"a line of more than {LONGEST_LINE} bytes") from None
        if not found.endswith(b"\n"):
            raise StreamError("truncated", "the connection ended within the response")
        return found.rstrip(b"\r\n")

    async def some(self, most: int) -> bytes:
        """Some bytes, none at the end."""
        try:
            async with asyncio.timeout(self.stall_s):
                return await self.source.read(most)
        except TimeoutError:
            raise StreamError("stalled", f"no byte for {self.stall_s:g} s") from None

    async def status(self) -> int:
        """The status, the headers being read behind it."""
        try:
            first = await self.line()
        except StreamError as error:
            if error.error == "truncated":
                raise StreamError("disconnected", "the server closed the connection without a response") from None
            raise
        words = first.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise StreamError("malformed", f"no HTTP/1 response: {first[:80]!r}")
        while header := await self.line():
            name, _, value = header.decode("latin-1").partition(":")
            self.headers[name.strip().lower()] = value.strip()
        return int(words[1])

    async def body(self) -> AsyncIterator[bytes]:
        """The body, piece by piece. Raises StreamError if it ends early."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            async for piece in self.chunks():
                yield piece
            return
        length = self.headers.get("content-length")
        left = int(length) if length is not None and length.isdigit() else None
        while left is None or left > 0:
            piece = await self.some(min(left or LONGEST_LINE, LONGEST_LINE))
            if not piece:
                if left is not None:
                    raise StreamError("truncated", f"{left} bytes of the body are missing")
                return
            left = None if left is None else left - len(piece)
            yield piece

    async def chunks(self) -> AsyncIterator[bytes]:
        """The pieces of a chunked body."""
        while True:
            size = (await self.line()).partition(b";")[0].strip()
            try:
                left = int(size, 16)
            except ValueError:
                raise StreamError("malformed", f"no size of a chunk: {size[:40]!r}") from None
            if left == 0:
                return
            while left:
                piece = await self.some(left)
                if not piece:
                    raise StreamError("truncated", "the connection ended within a chunk")
                left -= len(piece)
                yield piece
            await self.line()


async def events(reader: Reader) -> AsyncIterator[str]:
    """The data of each event, `[DONE]` included."""
    rest, data = b"", []
    async for piece in reader.body():
        *lines, rest = (rest + piece).split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" ").decode(errors="replace"))
            elif not line and data:
                yield "\n".join(data)
                data = []


def head(host: str, port: int, path: str, length: int, request_id: str) -> bytes:
    """The head of a POST."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}:{port}", "Content-Type: application/json"]
    lines += [f"Content-Length: {length}", "Accept: text/event-stream", "Connection: close"]
    return "\r\n".join([*lines, f"X-Request-Id: {request_id}", "", ""]).encode("ascii")


async def post(
    host: str, port: int, path: str, body: dict[str, Any], request_id: str, limits: Limits
) -> AsyncIterator[dict[str, Any]]:
    """Every event of the answer as JSON. Raises StreamError for what is not a whole stream that ends with `[DONE]`."""
    if host not in LOOPBACK:
        raise StreamError("refused", f"`{host}` is not this machine: load goes to loopback only")
    data = json.dumps(body).encode()
    source, writer = await connected(host, port, limits.connect_s)
    try:
        writer.write(head(host, port, path, len(data), request_id) + data)
        await writer.drain()
        reader = Reader(source, limits.stall_s)
        status = await reader.status()
        if status != 200:
            said = b""
            async for piece in reader.body():
                said += piece
                if len(said) > ERROR_BYTES:
                    break
            raise StreamError(f"http_{status}", said[:ERROR_BYTES].decode(errors="replace"), status)
        async for text in events(reader):
            if text == DONE:
                return
            yield parsed(text)
        raise StreamError("truncated", "the stream ended without `[DONE]`", status)
    except ConnectionError as error:
        raise StreamError("reset", str(error)) from None
    finally:
        writer.close()


async def connected(host: str, port: int, connect_s: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection. Raises StreamError."""
    try:
        async with asyncio.timeout(connect_s):
            return await asyncio.open_connection(host, port, limit=LONGEST_LINE)
    except TimeoutError:
        raise StreamError("connect_timeout", f"no connection within {connect_s:g} s") from None
    except ConnectionRefusedError as error:
        raise StreamError("refused", str(error)) from None
    except OSError as error:
        raise StreamError("unreachable", str(error)) from None


def parsed(text: str) -> dict[str, Any]:
    """The JSON of an event. Raises StreamError for what is none and for an error that the server reports in it."""
    try:
        body = json.loads(text)
    except ValueError:
        raise StreamError("malformed", f"an event is no JSON: {text[:80]!r}", 200) from None
    if not isinstance(body, dict):
        raise StreamError("malformed", "an event is no JSON object", 200)
    if body.get("error"):
        raise StreamError("error_event", json.dumps(body["error"])[:ERROR_BYTES], 200)
    return body
