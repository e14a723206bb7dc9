"""All commands of docs/DUCTILE.md and deploy/ductile/README.md, run with a real Ductile. Only ports differ."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from agent_service.workbench.dev import free_port
from tests.ductile.guide import GUIDE, ROOT, SAMPLES, add_file_handler
from tests.ductile.real import NO_BINARY
from tests.kit.waiting import wait_until

PORTS = ("8080", "8081", "8700", "8710", "4222")
WITHIN_S = 60.0


def needs_ductile(test: Any) -> Any:
    return pytest.mark.ductile(pytest.mark.skipif("DUCTILE_BIN" not in os.environ, reason=NO_BINARY)(test))


# How each block begins
LOOK_FIRST = "agentic ductile install ~/ductile --dry-run"
ADD = "agentic ductile install ~/ductile --yes --every"
START = "ductile system start"
NATS = "nats-server "
SETUP, GATEWAY, AGENT = "agentic setup", "ductile-gateway serve", "agentic serve"
LOOK = "ductile job logs"
REMOVE = "agentic ductile remove"
ORDER = "body="
WHOLE, ADD_TO_WHOLE = "mkdir ~/ductile && ", "mkdir ~/outcomes"
ALL = (LOOK_FIRST, ADD, START, NATS, SETUP, GATEWAY, AGENT, LOOK, REMOVE, ORDER, WHOLE, ADD_TO_WHOLE)
OPERATOR = "the-token-of-whoever-was-there-before"
OWN: dict[str, Any] = {
    "config.yaml": {
        "include": ["plugins.yaml", "tokens.yaml"],
        "service": {"name": "ductile", "tick_interval": "500ms", "strict_mode": True},
        "state": {"path": "./data/state.db"},
        "plugin_roots": ["./plugins"],
        "api": {"enabled": True, "auth": {"tokens": [{"token": OPERATOR, "scopes": ["*"]}]}},
    },
    "plugins.yaml": {"plugins": {"echo": {"enabled": True}}},
    "tokens.yaml": {"tokens": [{"name": "mine", "key": "a-secret-of-my-own"}]},
}
"""An operator's own configuration."""


def commands() -> Iterator[str]:
    """Command blocks of both pages, without those for version N."""
    for page in (GUIDE, SAMPLES / "README.md"):
        text = page.read_text(encoding="utf-8").partition("## Version N")[0]
        fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        yield from (block for language, block in fenced if not language)


class Service:
    """A block whose last command stays in the foreground."""

    def __init__(self, block: str, place: "Place") -> None:
        self._log = Path(tempfile.mkstemp(dir=place.folder, suffix=".log")[1])
        with self._log.open("w") as output:
            self._bash = subprocess.Popen(
                ["bash", "-c", block],
                cwd=place.repository,
                env=place.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def printed(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def interrupt(self) -> None:
        if self._bash.poll() is None:
            os.killpg(self._bash.pid, signal.SIGINT)
            self._bash.wait(WITHIN_S)


class Place:
    """A home directory beside a copy of the needed parts of this repository."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.home, self.repository = folder, folder / "home", folder / "repository"
        self.ductile = self.home / "ductile"
        self.ports = {port: free_port() for port in PORTS}
        self._stack = stack
        self.home.mkdir()
        unwanted = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / "deploy", self.repository / "deploy", ignore=unwanted)
        for file in self.repository.glob("deploy/ductile/config-*/**/*.yaml"):
            file.write_text(self._here(file.read_text()))
        (self.repository / ".venv").symlink_to(ROOT / ".venv")
        (programs := folder / "bin").mkdir()
        (programs / "ductile").symlink_to(os.environ["DUCTILE_BIN"])
        add_file_handler(folder / "ductiles-own" / "file_handler")
        self.environment = {
            "HOME": str(self.home),
            "USER": os.environ.get("USER", str(os.getuid())),
            "PATH": f"{programs}:{ROOT / '.venv' / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "AGENTIC_URL": self.url("8700"),
        }

    def url(self, port: str) -> str:
        return f"http://127.0.0.1:{self.ports[port]}"

    def _here(self, text: str) -> str:
        for port, own in self.ports.items():
            text = re.sub(rf"\b{port}\b", str(own), text)
        text = text.replace("/path/to/ductile/plugins", str(self.folder / "ductiles-own"))
        addresses = f"--agent {self.url('8700')} --gateway {self.url('8710')}"
        text = text.replace("ductile install ~/ductile", f"ductile install ~/ductile {addresses}")
        return text.replace("nats-server --jetstream", f"nats-server --port {self.ports['4222']} --jetstream")

    def block(self, beginning: str) -> str:
        """The one block with this beginning, with the addresses of this place."""
        (found,) = (block for block in commands() if block.startswith(beginning))
        return self._here(found)

    def run(self, block: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", block],
            cwd=self.repository,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        return done.stdout

    def start(self, beginning: str) -> Service:
        started = Service(self.block(beginning), self)
        self._stack.callback(started.interrupt)
        return started

    def start_services(self) -> None:
        settings = self.repository / "agentic.yaml"
        settings.write_text(f"{settings.read_text()}nats: {{urls: ['nats://127.0.0.1:{self.ports['4222']}']}}\n")
        nats = self.start(NATS)
        wait_until(self._nats_listens, nats.printed)
        self.run(self.block(SETUP))
        both = self.start(GATEWAY), self.start(AGENT)
        wait_until(self._is_ready, lambda: "".join(one.printed() for one in both), within_s=WITHIN_S)

    def files(self) -> dict[Path, bytes]:
        """Files of Ductile's folder, without Ductile's own data."""
        files = (file for file in self.ductile.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        return {file: file.read_bytes() for file in files if file.name != ".checksums" and "data" not in file.parts}

    def asked(self, port: str, path: str, token: str, **sent: Any) -> Any:
        headers, method = {"Authorization": f"Bearer {token}"}, "POST" if sent else "GET"
        answer = httpx2.request(method, self.url(port) + path, headers=headers, trust_env=False, **sent)
        return answer.raise_for_status().json()

    def runs(self) -> list[Any]:
        people = (self.repository / ".agentic" / "secrets" / "people").read_text().strip()
        return list(self.asked("8700", "/v1/runs", people)["runs"])

    def _nats_listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.ports["4222"])):
            return True
        return False

    def _is_ready(self) -> bool:
        with suppress(httpx2.TransportError):
            return httpx2.get(f"{self.url('8700')}/readyz", trust_env=False).is_success
        return False


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path, stack)


def test_every_command_that_the_guide_shows_is_run_here() -> None:
    shown = list(commands())
    assert [block for block in shown if not block.startswith(ALL)] == []
    assert len(shown) == len(ALL)


@needs_ductile
def test_agents_are_added_to_a_ductile_that_somebody_has_and_taken_out_to_the_byte(there: Place) -> None:
    (there.ductile / "plugins").mkdir(parents=True)
    OWN["config.yaml"]["api"]["listen"] = f"127.0.0.1:{there.ports['8080']}"
    for name, content in OWN.items():
        (there.ductile / name).write_text(yaml.safe_dump(content))
    there.run(f"cp -R {SAMPLES}/plugins/echo ~/ductile/plugins/ && chmod -R go-w ~/ductile")
    there.run("chmod 600 ~/ductile/tokens.yaml")
    there.run("ductile config lock --config ~/ductile && ductile config check --config ~/ductile")
    before = there.files()
    assert "+  - agentic/agentic.yaml" in there.run(there.block(LOOK_FIRST)).replace("+- ", "+  - ")
    assert there.files() == before
    there.run(there.block(ADD))
    ductiles = there.start(START)
    there.start_services()
    wait_until(there.runs, ductiles.printed, within_s=WITHIN_S)
    jobs = there.block(LOOK).partition("#")[0]  # Ductile logs a job once it has ended, which is after its run began
    wait_until(lambda: "agentic-wake" in there.run(jobs), ductiles.printed, within_s=WITHIN_S)
    assert "✗" not in (said := there.run(there.block(LOOK))), said
    assert there.asked("8080", "/plugins", OPERATOR)
    assert there.run(there.block(REMOVE))
    ductiles.interrupt()
    there.run(there.block(REMOVE).replace("--dry-run", "--yes"))
    assert there.files() == before


@needs_ductile
def test_the_guide_leads_from_nothing_to_outcomes_and_what_is_relayed_twice_is_one_run(
    there: Place,
) -> None:
    there.run(there.block(WHOLE))
    settings = yaml.safe_load((there.ductile / "config.yaml").read_text())
    settings["webhooks"] = {"listen": f"127.0.0.1:{there.ports['8081']}"}
    (there.ductile / "config.yaml").write_text(yaml.safe_dump(settings))
    there.run("ductile config lock --config ~/ductile")
    there.run(there.block(ADD_TO_WHOLE))
    ductiles = there.start(START)
    there.start_services()
    ordered = there.run(there.block(ORDER))
    assert "job_id" in ordered, ordered
    wait_until(lambda: list((there.home / "outcomes").iterdir()), ductiles.printed, within_s=WITHIN_S)
    (operator,) = yaml.safe_load((there.ductile / "people.yaml").read_text())["api"]["auth"]["tokens"]
    glance = {"payload": {"url": there.url("8080"), "glance_id": "g-1"}}
    for _ in range(2):
        there.asked("8080", "/pipeline/start-glance", operator["token"], json=glance)

    def relayed() -> bool:
        jobs = there.asked("8080", "/jobs?plugin=core.relay", operator["token"])["jobs"]
        return [job["status"] for job in jobs] == ["succeeded"] * 2

    wait_until(relayed, ductiles.printed, within_s=WITHIN_S)
    assert [run["wake_id"] for run in there.runs()].count("g-1") == 1
