"""A W&B server, as far as the client of the pinned version asks: runs, their history by line number, resuming.

What it does on its own account is what W&B's reference says of `resume`: with none, a run of the same id is
overwritten; with `allow` or `must`, the client is told the line count and the last row.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server:
    """Serves one run of one project."""

    def __init__(self) -> None:
        self.history: list[str] = []
        self.run: dict[str, Any] | None = None
        self.config = ""
        self.requests: list[str] = []
        self.bodies: list[str] = []
        handler = type("Bound", (Handler,), {"server_of": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> "Server":
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def rows(self) -> list[tuple[int, dict[str, Any]]]:
        """Step and values of each row of the history."""
        return [(row["_step"], row) for row in map(json.loads, self.history)]

    def bucket(self) -> dict[str, Any]:
        """The run, as the client asks for it."""
        project = {"id": "p", "name": "toy", "entity": {"id": "e", "name": "me"}}
        texts = {"eventsTail": "[]", "summaryMetrics": "{}", "config": "{}", "wandbConfig": '{"t": {}}'}
        counts = {"historyLineCount": len(self.history), "eventsLineCount": 0, "logLineCount": 0}
        tail = json.dumps(self.history[-1:])
        return {"id": "x", **(self.run or {}), **texts, **counts, "tags": [], "historyTail": tail, "project": project}

    def answer(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        """The data of one GraphQL request."""
        named = re.search(r"(?:query|mutation)\s+(\w+)", query)
        name = named.group(1) if named else ""
        if name == "UpsertBucket":
            inserted = self.run is None
            if given.get("displayName"):  # the first of a client; later ones change single fields
                if not given.get("id"):
                    self.history = []
                self.run = {"name": given["name"], "displayName": given["displayName"]}
                self.config = given["config"]
            return {"upsertBucket": {"bucket": self.bucket(), "inserted": inserted}}
        if name == "RunResumeStatus":
            model = {"id": "p", "name": "toy", "entity": {"id": "e", "name": "me"}}
            return {"model": {**model, "bucket": self.bucket() if self.run else None}}
        if name == "CreateRunFiles":
            files = [{"name": file, "uploadUrl": f"{self.url}/up/{file}"} for file in given["files"]]
            return {"createRunFiles": {"runID": "x", "uploadHeaders": [], "files": files}}
        viewer = {"id": "v", "entity": "me", "username": "u", "flags": "{}", "teams": {"edges": []}}
        return {"viewer": viewer, "serverInfo": {"features": []}}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_of: Server

    def log_message(self, *_: Any) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            pass  # the client left; what it had sent is kept

    def reply(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server_of.requests.append(f"{self.command} {self.path}")
        self.server_of.bodies.append(data.decode(errors="replace"))
        return data

    def do_GET(self) -> None:
        self.body()
        self.reply({})

    do_PUT = do_CONNECT = do_GET

    def do_POST(self) -> None:
        data = json.loads(self.body() or b"{}")
        if self.path == "/graphql":
            self.reply({"data": self.server_of.answer(data["query"], data.get("variables") or {})})
            return
        part = (data.get("files") or {}).get("wandb-history.jsonl")
        if part is not None:
            self.server_of.history[part["offset"] :] = part["content"]
        self.reply({"exitcode": None, "limits": {}})
