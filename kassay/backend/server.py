"""A small OpenAI-compatible server on the reference backend, for measurements on this machine alone.

    GET  /health             200 once the model is loaded
    GET  /v1/models          the one model
    POST /v1/completions     POST /v1/chat/completions     streamed or whole, with `usage`

The standard library's HTTP server, a thread a connection; decoding is kassay.backend.cohort, in the main thread. It
listens on 127.0.0.1 only, holds a bounded queue (503 beyond it, with `Retry-After`) and a bounded number of
connections. The counts in `usage` are the tokens that were decoded, whatever text they became. What it does not do:
sampling, templates, keep-alive after an error, more than one model.
"""

import json
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kassay.backend import completion
from kassay.backend.cohort import Decoder
from kassay.backend.completion import Asked, BadRequest, Job, Piece

HOST = "127.0.0.1"
LARGEST_BODY_BYTES = 8 * 2**20
IDLE_S = 30.0  # of a connection on which nothing comes
SPARE_CONNECTIONS = 16  # beyond those that decode and wait: health, models, refusals
PATHS = {"/v1/completions": False, "/v1/chat/completions": True}
DONE = b"data: [DONE]\n\n"


class Refused(Exception):
    """A request that gets an error in place of an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Listener(ThreadingHTTPServer):
    """The listening socket and what its connections share."""

    daemon_threads = True
    request_queue_size = 128  # the standard five would refuse a burst that the queue has room for

    def __init__(self, port: int, decoder: Decoder) -> None:
        self.decoder = decoder
        served = decoder.served
        self.room = threading.BoundedSemaphore(served.largest_cohort + served.most_waiting + SPARE_CONNECTIONS)
        super().__init__((HOST, port), Handler)

    @property
    def port(self) -> int:
        """The port that it really listens on."""
        return int(self.server_address[1])

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """A connection within the bound; one beyond it is closed."""
        if not self.room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is a line of the log; anything else keeps its traceback."""
        if isinstance(error := sys.exc_info()[1], OSError):
            print(f"{client_address[0]}:{client_address[1]} went away: {error}", file=sys.stderr)
        else:
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Listener
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    disable_nagle_algorithm = True  # or a token waits for the client's acknowledgement of the one before

    def do_GET(self) -> None:
        """Health and models."""
        if self.path == "/health":
            self.answer(200, {"status": "ok"})
        elif self.path == "/v1/models":
            model = {"id": self.server.decoder.served.name, "object": "model", "owned_by": "kassay"}
            self.answer(200, {"object": "list", "data": [model]})
        else:
            self.refuse(Refused(404, f"no such path: {self.path}"))

    def do_POST(self) -> None:
        """A completion or a chat."""
        try:
            if self.path not in PATHS:
                raise Refused(404, f"no such path: {self.path}")
            asked, job = self.accepted(PATHS[self.path])
        except Refused as refused:
            self.refuse(refused)
            return
        shape = Shape(self.server.decoder.served.name, job.request_id, asked.chat)
        try:
            if asked.stream:
                self.stream(asked, job, shape)
            else:
                *_, last = pieces(job)
                self.answer(200, shape.whole(job, last))
        except OSError:
            job.gone = True  # the client went away: its row is decoded on, for nobody
            self.close_connection = True

    def accepted(self, chat: bool) -> tuple[Asked, Job]:
        """The request, in the queue. Raises Refused."""
        served = self.server.decoder.served
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            raise Refused(411, "a request needs its Content-Length")
        if int(length) > LARGEST_BODY_BYTES:
            raise Refused(413, f"a body has at most {LARGEST_BODY_BYTES} bytes")
        body = self.rfile.read(int(length))
        try:
            asked = completion.parse(body, model=served.name, chat=chat, most_tokens=served.most_tokens)
            prompt = served.encoded(asked)
        except BadRequest as error:
            raise Refused(400, "; ".join(error.messages)) from None
        job = Job(
            request_id=self.headers.get("X-Request-Id") or secrets.token_hex(8),
            prompt=prompt,
            max_tokens=asked.max_tokens,
            stops=frozenset() if asked.ignore_eos else served.checkpoint.text.stops,
        )
        if not self.server.decoder.waiting.put(job):
            raise Refused(503, f"{served.most_waiting} requests wait already")
        return asked, job

    def stream(self, asked: Asked, job: Job, shape: "Shape") -> None:
        """Server-sent events, one a decode step, each sent at once."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if asked.chat:
            self.chunk(event(shape.part({"role": "assistant", "content": ""}, None)))
        last = None
        for last in pieces(job):
            content: Any = {"content": last.text} if asked.chat else last.text
            self.chunk(event(shape.part(content, last.finish_reason)))
        if asked.usage and last is not None:
            self.chunk(event(shape.counts(job, last)))
        self.chunk(DONE)
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        """One chunk of a chunked body, in one write."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def answer(self, status: int, body: dict[str, Any]) -> None:
        """A whole JSON response."""
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status == 503:
            self.send_header("Retry-After", "1")
        if status >= 400:
            self.send_header("Connection", "close")  # its body may be unread
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, refused: Refused) -> None:
        """An error as clients of this form expect it."""
        self.answer(refused.status, {"error": {"message": str(refused), "code": refused.status}})


class Shape:
    """Responses of one request in OpenAI's form."""

    def __init__(self, model: str, request_id: str, chat: bool) -> None:
        self.chat = chat
        self.head = {"id": request_id, "created": int(time.time()), "model": model}

    def part(self, content: Any, finish_reason: str | None) -> dict[str, Any]:
        """One event of a stream."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        choice = {"index": 0, "delta" if self.chat else "text": content, "finish_reason": finish_reason}
        return {**self.head, "object": kind, "choices": [choice]}

    def counts(self, job: Job, last: Piece) -> dict[str, Any]:
        """The event with the counts, which has no choice."""
        return {**self.part("", None), "choices": [], "usage": usage(job, last)}

    def whole(self, job: Job, last: Piece) -> dict[str, Any]:
        """The response that is not streamed."""
        kind = "chat.completion" if self.chat else "text_completion"
        message: Any = {"role": "assistant", "content": job.shown} if self.chat else job.shown
        choice = {"index": 0, "message" if self.chat else "text": message, "finish_reason": last.finish_reason}
        return {**self.head, "object": kind, "choices": [choice], "usage": usage(job, last)}


def usage(job: Job, last: Piece) -> dict[str, int]:
    """Token counts, which are the decoder's own."""
    prompt = len(job.prompt)
    total = prompt + last.output_tokens
    return {"prompt_tokens": prompt, "completion_tokens": last.output_tokens, "total_tokens": total}


def pieces(job: Job) -> Iterator[Piece]:
    """What a request gets, up to its last piece."""
    while True:
        piece = job.pieces.get()
        yield piece
        if piece.finish_reason is not None:
            return


def event(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(body)}\n\n".encode()


def serve(port: int, decoder: Decoder, ready: Callable[[int], None]) -> None:
    """Listen and decode until the decoder is told to stop; `ready` hears the port before anything is answered."""
    listener = Listener(port, decoder)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    ready(listener.port)
    thread.start()
    try:
        decoder.run()
    finally:
        listener.shutdown()
        listener.server_close()
