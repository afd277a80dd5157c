"""A server of OpenAI's form without a model, told what to do with each POST: `python fake.py --port 0 ok http_500 …`.

What the list does not reach is `ok`. It writes the port that it listens on to standard output.
"""

import argparse
import json
import os
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STALL_S = 30.0


class Fake(ThreadingHTTPServer):
    """Listens on loopback and counts POSTs."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, faults: list[str], token_s: float = 0.0) -> None:
        self.faults = faults
        self.token_s = token_s
        self.posts: list[tuple[str, dict[str, Any]]] = []
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    def next_fault(self, body: dict[str, Any]) -> str:
        """What to do with this POST."""
        with self.lock:
            fault = self.faults[len(self.posts)] if len(self.posts) < len(self.faults) else "ok"
            self.posts.append((fault, body))
            return fault


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Fake
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""

    def do_GET(self) -> None:
        """Healthy at once."""
        self.plain(200, b'{"status": "ok"}')

    def plain(self, status: int, data: bytes, length: int | None = None) -> None:
        """A response with a length."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        """What the list says."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.server.next_fault(body)
        self.close_connection = True
        if fault == "die":
            os._exit(9)
        if fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif fault == "hang_up":
            self.connection.shutdown(socket.SHUT_RDWR)
        elif fault.startswith("http_"):
            self.plain(int(fault.removeprefix("http_")), b'{"error": {"message": "told to"}}')
        elif fault == "garbage":
            self.wfile.write(b"no HTTP at all\r\n\r\n")
        elif fault == "short_body":
            self.plain(200, b'data: {"choices": [{"text": "a"}]}\n\n', length=500)
        else:
            self.stream(fault, body)

    def stream(self, fault: str, body: dict[str, Any]) -> None:
        """A chunked stream, whole or broken off."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        wanted = body["max_tokens"] if fault not in ("one", "empty") else {"one": 1, "empty": 0}[fault]
        chat = "messages" in body
        if chat:
            self.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for index in range(wanted):
            if index == 2 and fault == "stalled":
                time.sleep(STALL_S)
            if index == 2 and fault == "truncated":
                return
            if index == 2 and fault == "error_event":
                self.event({"error": {"message": "out of memory"}})
            if index == 2 and fault == "malformed":
                self.chunk(b"data: {broken\n\n")
            time.sleep(self.server.token_s)
            last = "length" if index == wanted - 1 else None
            text: Any = {"delta": {"content": "x"}} if chat else {"text": "x"}
            self.event({"choices": [{**text, "finish_reason": last}]})
        if fault != "no_usage":
            prompt = len(body.get("prompt") or body["messages"][0]["content"]) + 1
            self.event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": wanted}})
        if fault != "no_done":
            self.chunk(b": a comment\n\ndata: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, body: dict[str, Any]) -> None:
        """An event, in two chunks and with CRLF, as a proxy may cut it."""
        kind = "text_completion" if self.path == "/v1/completions" else "chat.completion.chunk"
        body = {"id": "fake", "object": kind, "model": "m", **body}
        data = f"data: {json.dumps(body)}\r\n\r\n".encode()
        self.chunk(data[:9])
        self.chunk(data[9:])

    def chunk(self, data: bytes) -> None:
        """One chunk."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("faults", nargs="*")
    given = parser.parse_args()
    Fake(given.port, given.faults).serve_forever()
