"""A real Ductile for tests: its configuration in a temporary folder, its process, and what it ran.

The binary is not part of this repository: bring one and name it in DUCTILE_BIN. The configuration is one of version M.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from tests.ductile.under_test import PROBE, TOKENS, Execution, Peer
from tests.plugins.asking import SHIPPED

PATIENCE_SECONDS = 30


class RealDuctile:
    """A running Ductile with the shipped plugins, the probe plugin, its pipelines and one relay peer.

    further: more of its configuration, a file for each name, such as {"wake.yaml": {"pipelines": [...]}}, or its text.
    probe: the folder of another plugin of that name, which takes the probe's place.
    Raises subprocess.CalledProcessError when the configuration cannot be locked, RuntimeError when it does not start.
    """

    def __init__(
        self, binary: str, folder: Path, *, further: Mapping[str, Any] | None = None, probe: Path = PROBE
    ) -> None:
        self.peer = Peer()
        self.tokens: Mapping[str, str] = {name: f"token-of-{name}" for name in TOKENS}
        self._binary, self._folder, self._port = binary, folder, _free_port()
        self.record = folder / "executions"
        self._write_configuration(probe, further or {})
        self._process = self._started()

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end; the same after a restart."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def token(self) -> str:
        """The token named `gateway`."""
        return self.tokens["gateway"]

    @property
    def executions(self) -> Sequence[Execution]:
        """What the probe recorded. The attempt is counted: Ductile does not tell a plugin which one it is."""
        runs: Counter[str] = Counter()
        found = []
        for line in map(json.loads, self.record.read_text(encoding="utf-8").splitlines()):
            runs[line["job_id"]] += 1
            found.append(Execution(plugin="probe", attempt=runs[line["job_id"]], **line))
        return found

    def kill(self) -> None:
        """End it with SIGKILL; what its plugins do goes on."""
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        """Ask it to end with SIGTERM, and wait: it lets its plugins finish first."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_SECONDS)

    def start(self) -> None:
        """Start it after `kill` or `stop`. Returns once it is healthy."""
        self._process = self._started()

    def close(self) -> None:
        """End it for good."""
        if self._process.poll() is None:
            self.kill()

    def _write_configuration(self, probe: Path, further: Mapping[str, Any]) -> None:
        """Locked last: the lock knows absolute paths and what the files held."""
        self.record.touch()
        for plugin in (*SHIPPED.iterdir(), probe):
            shutil.copytree(
                plugin, self._folder / "plugins" / plugin.name, ignore=shutil.ignore_patterns("__pycache__")
            )
        included = _included(self.peer, self.record) | dict(further)
        files = {"config.yaml": self._main_file(included)} | included
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (self._folder / name).write_text(text, encoding="utf-8")
        subprocess.run(["chmod", "-R", "go-w", self._folder], check=True)
        subprocess.run([self._binary, "config", "lock", "--config", self._folder], check=True, capture_output=True)

    def _main_file(self, included: Mapping[str, Any]) -> dict[str, Any]:
        tokens = [{"token": self.tokens[name], "scopes": list(scopes)} for name, scopes in TOKENS.items()]
        return {
            "include": list(included),
            "service": {"name": "ductile-test", "tick_interval": "500ms", "max_workers": 4, "dedupe_ttl": "1h"},
            "state": {"path": "./data/state.db"},
            "plugin_roots": ["./plugins"],
            "api": {"enabled": True, "listen": f"127.0.0.1:{self._port}", "auth": {"tokens": tokens}},
        }

    def _started(self) -> "subprocess.Popen[bytes]":
        log = self._folder / "log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [self._binary, "system", "start", "--config", self._folder],
                stdout=output,
                stderr=output,
                env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            )
        until = time.monotonic() + PATIENCE_SECONDS
        while not self._healthy():
            if process.poll() is not None or time.monotonic() > until:
                process.kill()
                raise RuntimeError(f"Ductile did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        return process

    def _healthy(self) -> bool:
        with contextlib.suppress(httpx2.TransportError):
            return httpx2.get(f"{self.url}/healthz", trust_env=False).status_code == 200
        return False


def _included(peer: Peer, record: Path) -> dict[str, Any]:
    known = {"name": peer.name, "enabled": True, "secret_ref": "relay", "key_id": peer.key_id}
    ingress = {"listen_path": "/ingest/peer", "max_body_size": "256KB", "allowed_clock_skew": "5m"}
    return {
        "tokens.yaml": {"tokens": [{"name": "relay", "key": peer.secret}]},
        "relay-ingress.yaml": {
            "remote_ingress": ingress | {"require_key_id": True, "peers": [known | {"accept": list(peer.accepts)}]}
        },
        "plugins.yaml": {
            "plugins": {
                **{plugin.name: {"enabled": True} for plugin in SHIPPED.iterdir()},
                "fetch": {"enabled": True, "config": {"allow_private": True}},
                "probe": {
                    "enabled": True,
                    "config": {"executions": str(record)},
                    "timeouts": {"handle": "2s"},
                    "retry": {"backoff_base": "50ms"},
                },
            }
        },
        "pipelines.yaml": {
            "pipelines": [
                _pipeline("probe-asked", "probe.asked"),
                _pipeline("probe-emitted", "probe.emitted"),
            ]
        },
    }


def _pipeline(name: str, event: str) -> dict[str, Any]:
    return {"name": name, "on": event, "steps": [{"id": "step", "uses": "probe"}]}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port: int = unused.getsockname()[1]
    return port
