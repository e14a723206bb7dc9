"""A real Ductile (version M) for tests: its process, its configuration in a temporary folder, and its executions.

DUCTILE_BIN names the binary, which is not part of this repository.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest

from agent_service.workbench.dev import free_port
from tests.ductile.under_test import PROBE, TOKENS, Execution, Peer
from tests.kit.waiting import wait_until
from tests.plugins.asking import SHIPPED

NO_BINARY = "no Ductile: bring a Ductile binary and set DUCTILE_BIN to its path"
real_ductile = [pytest.mark.ductile, pytest.mark.skipif("DUCTILE_BIN" not in os.environ, reason=NO_BINARY)]


class RealDuctile:
    """A running Ductile with the shipped plugins, the probe plugin, its pipelines and one relay peer. probe: folder of
    a plugin that replaces the probe."""

    def __init__(self, folder: Path, *, probe: Path = PROBE) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{free_port()}"
        self._environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.peer = Peer()
        self.tokens: Mapping[str, str] = {name: f"token-of-{name}" for name in TOKENS}
        self.token = self.tokens["gateway"]
        self._record = folder / "executions"
        self._record.touch()
        for plugin in (*SHIPPED.iterdir(), probe):
            target = folder / "plugins" / plugin.name
            shutil.copytree(plugin, target, ignore=shutil.ignore_patterns("__pycache__"))
        included = self._included()
        for name, content in ({"config.yaml": self._main_file(included)} | included).items():
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
        subprocess.run(["chmod", "-R", "go-w", folder], check=True)
        lock = [os.environ["DUCTILE_BIN"], "config", "lock", "--config", str(folder)]
        subprocess.run(lock, env=self._environment, check=True, capture_output=True)
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Returns once it is healthy."""
        log = self.folder / "log"
        command = [os.environ["DUCTILE_BIN"], "system", "start", "--config", str(self.folder)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=self._environment)

        def healthy() -> bool:
            assert self._process.poll() is None, log.read_text(errors="replace")[-2000:]
            with suppress(httpx2.TransportError):
                return httpx2.get(f"{self.url}/healthz", trust_env=False).status_code == 200
            return False

        wait_until(healthy, lambda: log.read_text(errors="replace")[-2000:])

    def kill(self) -> None:
        """Ends it with SIGKILL; its plugins go on. SIGTERM would wait for open streams."""
        self._process.kill()
        self._process.wait()

    @property
    def executions(self) -> Sequence[Execution]:
        """Records of the probe. Attempts are counted here, because Ductile does not tell them to plugins."""
        runs: Counter[str] = Counter()
        found = []
        for line in map(json.loads, self._record.read_text(encoding="utf-8").splitlines()):
            runs[line["job_id"]] += 1
            found.append(Execution(plugin="probe", attempt=runs[line["job_id"]], **line))
        return found

    def _main_file(self, included: Mapping[str, Any]) -> dict[str, Any]:
        tokens = [{"token": self.tokens[name], "scopes": list(scopes)} for name, scopes in TOKENS.items()]
        listen = self.url.removeprefix("http://")
        return {
            "include": list(included),
            "service": {"name": "ductile-test", "tick_interval": "500ms", "max_workers": 4, "dedupe_ttl": "1h"},
            "state": {"path": "./data/state.db"},
            "plugin_roots": ["./plugins"],
            "api": {"enabled": True, "listen": listen, "auth": {"tokens": tokens}},
        }

    def _included(self) -> dict[str, Any]:
        known = {"name": self.peer.name, "enabled": True, "secret_ref": "relay", "key_id": self.peer.key_id}
        ingress: dict[str, Any] = {"listen_path": "/ingest/peer", "max_body_size": "256KB", "allowed_clock_skew": "5m"}
        ingress |= {"require_key_id": True, "peers": [known | {"accept": list(self.peer.accepts)}]}
        probe = {"config": {"executions": str(self._record)}, "timeouts": {"handle": "4s"}}
        plugins: dict[str, dict[str, Any]] = {plugin.name: {"enabled": True} for plugin in SHIPPED.iterdir()}
        plugins["fetch"]["config"] = {"allow_private": True}
        plugins["probe"] = {"enabled": True, "retry": {"backoff_base": "50ms"}} | probe
        heard = {"probe-asked": "probe.asked", "endings": "agent.completed"}
        steps = [{"id": "step", "uses": "probe"}]
        pipelines = [{"name": name, "on": event, "steps": steps} for name, event in heard.items()]
        return {
            "tokens.yaml": {"tokens": [{"name": "relay", "key": self.peer.secret}]},
            "relay-ingress.yaml": {"remote_ingress": ingress},
            "plugins.yaml": {"plugins": plugins},
            "pipelines.yaml": {"pipelines": pipelines},
        }
