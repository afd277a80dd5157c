"""The in-tree server behind a proxy that breaks what it is told to: `python proxy.py --port N --server DIR FAULT …`.

A DIR that does not exist is served by a fake without faults, so that one real server is enough for a test. Else it
holds the request.json of stages/serving_server.py; its port is filled in. A fault stands for one POST, in order; what
the list does not reach passes. DIR/proxy.jsonl says what was done with each POST. `refuse` lets its own POST pass and
closes the listening socket for good, so that whatever connects later is refused by the kernel.
"""

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
STALL_S = 30.0
CUT_BYTES = 900  # of the answer that pass before it is broken off: its head and some events
EMPTY = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 0}}\n\ndata: [DONE]\n\n'
)
BROKEN = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """Accepts, and treats every POST as the list says."""

    def __init__(self, port: int, upstream: int, log: Path, faults: list[str]) -> None:
        self.listener = socket.create_server((HOST, port), backlog=64)
        self.upstream = upstream
        self.log = log
        self.faults = faults
        self.posts = 0
        self.lock = threading.Lock()

    def run(self) -> None:
        """Until the process is ended."""
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                time.sleep(STALL_S)  # the socket is closed for good
                continue
            threading.Thread(target=self.treat, args=(client,), daemon=True).start()

    def treat(self, client: socket.socket) -> None:
        """One connection."""
        first = client.recv(65536)
        fault = self.fault(first)
        if fault == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif fault in ("empty", "http_500"):
            client.sendall(EMPTY if fault == "empty" else BROKEN)
        else:
            self.forward(client, first, fault)
        client.close()

    def fault(self, first: bytes) -> str:
        """What to do with a request; only POSTs count."""
        if not first.startswith(b"POST"):
            return "pass"
        with self.lock:
            fault = self.faults[self.posts] if self.posts < len(self.faults) else "pass"
            self.posts += 1
            with self.log.open("a") as stream:
                stream.write(json.dumps(fault) + "\n")
            if fault == "refuse":
                self.listener.shutdown(socket.SHUT_RDWR)
                self.listener.close()
            return fault

    def forward(self, client: socket.socket, first: bytes, fault: str) -> None:
        """Pass a request on and its answer back, up to the fault."""
        with socket.create_connection((HOST, self.upstream)) as server:
            server.sendall(first)
            passed = 0
            while data := server.recv(4096):
                if fault in ("truncated", "stalled") and passed + len(data) > CUT_BYTES:
                    client.sendall(data[: CUT_BYTES - passed])
                    time.sleep(STALL_S if fault == "stalled" else 0)
                    return
                try:
                    client.sendall(data)
                except OSError:
                    return
                passed += len(data)


def free_port() -> int:
    """A port for the server behind."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether somebody does."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("faults", nargs="*")
    given = parser.parse_args()
    if not given.server.is_dir():
        sys.path.insert(0, str(ROOT))
        from tests.serving.fake import Fake

        Fake(given.port, []).serve_forever()
    behind = free_port()
    request = json.loads((given.server / "request.json").read_text())
    request["params"]["port"] = behind
    (given.server / "request.json").write_text(json.dumps(request))
    program = ROOT / "stages" / "serving_server.py"
    subprocess.Popen([sys.executable, str(program), str(given.server)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    while not listens(behind):
        time.sleep(0.05)
    Proxy(given.port, behind, given.server / "proxy.jsonl", given.faults).run()
