"""The agent's API without protection."""

import gzip
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit


class Api(BaseHTTPRequestHandler):
    """Handles one request after the other."""

    protocol_version = "HTTP/1.1"
    runs: dict[str, dict[str, Any]]
    numbers: "itertools.count[int]"
    files: Path

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        match unquote(url.path).split("/", 4):
            case ["", "v1", "runs", run_id]:
                self._answer(200, self.runs.get(run_id, {}))
            case ["", "v1", "runs", run_id, rest] if rest.startswith("workspace/"):
                path = self.files / run_id / rest.removeprefix("workspace/")
                self._answer(200, {"content": path.read_text("latin-1")})
            case ["", "v1", "runs"]:
                self._answer(200, {"runs": list(self.runs.values())})
            case _:
                self._answer(200, {"environment": dict(os.environ), "path": self.path})

    def do_POST(self) -> None:
        body = self._body()
        if self.path != "/v1/wake":
            self._answer(202, {"accepted": True})
            return
        asked = json.loads(body or b"{}")
        wake_id = asked.get("wake_id") if isinstance(asked, dict) else None
        run_id = f"run_{next(self.numbers)}"
        self.runs[run_id] = {"run_id": run_id, "wake_id": wake_id, "asked": asked, "body": body.decode("latin-1")}
        self._answer(202, {"accepted": True, "run_id": run_id})

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Nothing is told of anybody."""


@contextmanager
def api(files: Path) -> Iterator[str]:
    """Yields its address. `files` holds a folder for each run."""
    kept = {"runs": {}, "numbers": itertools.count(1), "files": files}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("TwinOfApi", (Api,), kept))
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
