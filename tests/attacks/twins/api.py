"""The agent's API without protection."""

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.kit.http_server import Call, Response, WireServer


class Api:
    def __init__(self, files: Path) -> None:
        self._files = files
        self._runs: dict[str, dict[str, Any]] = {}

    def answer(self, call: Call) -> Response:
        status, body = (200, self._shown(call)) if call.method == "GET" else (202, self._done(call))
        return Response(status=status, body=json.dumps(body).encode())

    def _shown(self, call: Call) -> dict[str, Any]:
        match unquote(urlsplit(call.path).path).split("/", 4):
            case ["", "v1", "runs", run_id]:
                return self._runs.get(run_id, {})
            case ["", "v1", "runs", run_id, rest] if rest.startswith("workspace/"):
                path = self._files / run_id / rest.removeprefix("workspace/")
                return {"content": path.read_text("latin-1")}
            case ["", "v1", "runs"]:
                return {"runs": list(self._runs.values())}
        return {"environment": dict(os.environ), "path": call.path}

    def _done(self, call: Call) -> dict[str, Any]:
        if call.path != "/v1/wake":
            return {"accepted": True}
        body = gzip.decompress(call.raw) if call.headers.get("content-encoding") == "gzip" else call.raw
        asked, run_id = json.loads(body or b"{}"), f"run_{len(self._runs) + 1}"
        wake_id = asked.get("wake_id") if isinstance(asked, dict) else None
        self._runs[run_id] = {"run_id": run_id, "wake_id": wake_id, "asked": asked, "body": body.decode("latin-1")}
        return {"accepted": True, "run_id": run_id}


@contextmanager
def api(files: Path) -> Iterator[str]:
    """Yields its address. `files` holds a folder for each run."""
    with WireServer(Api(files).answer) as server:
        yield server.url
