"""The whole circle on one machine: a real Ductile with the sample configuration, and both services with the guide's.

Beside the sample's plugins there is the probe, for a tool that takes its time.
"""

import asyncio
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from agent_service.workbench.dev import DevOptions, DevStack, free_port, stack
from groundwork.service.errors import Misconfigured
from tests.ductile.circle_script import SCRIPT
from tests.ductile.sample_house import (
    AGENTIC,
    AGENTIC_TOKEN,
    WAKE_TOKEN,
    SampleHouse,
    guide_passing_on,
    guide_peer,
    guide_pipeline,
    guide_settings,
    in_place,
)
from tests.ductile.under_test import PROBE
from tests.e2e.bodies import ENDED
from tests.kit.waiting import wait_until

ANSWER, ANSWERED, ALLOWED = "answer.found", "person.answered", "person.allowed"
ALLOWING = {
    "name": "allow-at-once",
    "on": "agent.waiting",
    "steps": [
        {
            "id": "tell",
            "relay": {
                "to": "agentic-gateway",
                "event": ALLOWED,
                "with": {"run_id": "payload.run_id", "hash": "payload.arguments_hash"},
            },
        }
    ],
}
"""A person who allows whatever is asked, as a pipeline of Ductile."""
ALLOWS = {
    "to": "agentic.signal",
    "kind": "approve",
    "run_id": "/payload/run_id",
    "arguments_hash": "/payload/hash",
}
STARTS_WITHIN_S = 60.0
PAGES = Path(str(resources.files("agent_service"))) / "scripts"

real_ductile = [
    pytest.mark.ductile,
    pytest.mark.skipif(
        "DUCTILE_BIN" not in os.environ, reason="no Ductile: bring a Ductile binary and set DUCTILE_BIN to its path"
    ),
]


@dataclass(frozen=True, slots=True)
class Circle:
    """A Ductile, the services beside it, and a page to fetch.

    ingress: where the gateway takes events.
    """

    folder: Path
    house: SampleHouse
    agent: str
    ingress: str
    page: str

    @contextmanager
    def ductile(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Ductile, killed at the end. Asked to stop, it waits ten seconds for the gateway to hang up."""
        with self.house.running() as process:
            try:
                yield process
            finally:
                process.kill()

    @property
    def record(self) -> Path:
        """What the probe has run, a line for each time."""
        return self.folder / "record"

    def is_answered(self) -> bool:
        """Whether the agent listens."""
        with suppress(httpx2.TransportError):
            return self._ask("GET", "/healthz").is_success
        return False

    def wake(self, goal: str) -> str:
        """The id of a new run."""
        answer = self._ask("POST", "/v1/wake", token=WAKE_TOKEN, json={"goal": goal})
        assert answer.status_code == 202, answer.text
        run_id: str = answer.json()["run_id"]
        return run_id

    def runs(self) -> list[dict[str, Any]]:
        """All runs, the newest first."""
        found: list[dict[str, Any]] = self._ask("GET", "/v1/runs").json()["runs"]
        return found

    def run(self, run_id: str) -> dict[str, Any]:
        """Where the run stands."""
        found: dict[str, Any] = self._ask("GET", f"/v1/runs/{run_id}").json()
        return found

    def results(self, run_id: str) -> list[Any]:
        """What the journal of a run says of the tools that answered."""
        return [entry["event"]["result"] for entry in self.entries(run_id) if entry["kind"] == "ToolReturned"]

    def entries(self, run_id: str) -> list[Any]:
        """The journal of a run."""
        found: list[Any] = self._ask("GET", f"/v1/runs/{run_id}/entries").json()["entries"]
        return found

    def ended(self, run_id: str) -> dict[str, Any]:
        """The run, once it has ended."""
        wait_until(lambda: self.run(run_id)["state"] in ENDED, lambda: str(self.run(run_id)))
        return self.run(run_id)

    def outcome(self, run_id: str) -> str:
        """What Ductile keeps of the run, once it does."""
        file = self.house.outcomes / f"{run_id}.md"
        wait_until(
            lambda: file.exists() and bool(file.read_text()),
            lambda: f"no {file.name}: {self.run(run_id)}, {self.house.jobs('file_handler')}",
        )
        return file.read_text()

    def with_goal(self, part: str) -> list[str]:
        """The ids of the runs that have this in their goal."""
        return [run["run_id"] for run in self.runs() if part in run["goal"]]

    def started(self, part: str) -> str:
        """The id of the one run that has this in its goal, once it is there."""
        wait_until(lambda: bool(self.with_goal(part)), lambda: f"no run for {part}: {self.log('gateway')[-2000:]}")
        (run_id,) = self.with_goal(part)
        return run_id

    def log(self, service: str) -> str:
        """What a service has logged so far."""
        file = self.folder / "stack" / "logs" / f"{service}.log"
        return file.read_text() if file.exists() else ""

    def _ask(self, method: str, path: str, *, token: str = AGENTIC_TOKEN, **options: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.request(method, self.agent + path, headers=headers, trust_env=False, **options)


class _Pages(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def drawn(folder: Path) -> Iterator[Circle]:
    """Everything in place and nothing started but the server of the page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, directory=str(PAGES))) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        page = f"http://127.0.0.1:{pages.server_port}/page.html"
        agent, ingress = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        house = in_place(folder / "house", agent=agent, gateway=ingress)
        circle = Circle(folder, house, agent, ingress, page)
        circle.record.touch()
        house.change(AGENTIC, lambda content: _with_the_page(content["plugins"]["agentic-wake"], circle))
        house.change("plugins.yaml", lambda content: _with_the_probe(content["plugins"], circle))
        shutil.copytree(PROBE, house.folder / "plugins" / "probe", ignore=shutil.ignore_patterns("__pycache__"))
        try:
            yield circle
        finally:
            pages.shutdown()


@contextmanager
def services(circle: Circle) -> Iterator["Future[DevStack]"]:
    """The bus, the agent, which answers from here on, and the gateway. The future says when all of them are ready."""
    ready: Future[DevStack] = Future()
    enough = threading.Event()

    async def serve() -> None:
        try:
            async with stack(_options(circle)) as made:
                ready.set_result(made)
                await asyncio.Event().wait()
        except Misconfigured as error:
            ready.set_exception(error)

    async def run() -> None:
        serving = asyncio.create_task(serve())
        await asyncio.to_thread(enough.wait)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(asyncio.run, run())
        try:
            wait_until(lambda: ready.done() or circle.is_answered(), lambda: circle.log("agent")[-2000:])
            yield ready
        finally:
            enough.set()
            ended.result(STARTS_WITHIN_S)


@contextmanager
def running(folder: Path) -> Iterator[Circle]:
    """Everything started, with the pipelines of the guide, which are not in use by themselves."""
    with drawn(folder) as circle:
        circle.house.include("answering.yaml", guide_pipeline())
        circle.house.include("passing-on.yaml", guide_passing_on())
        circle.house.change(
            AGENTIC, lambda content: content["instances"][0]["allow"].extend((ANSWER, ANSWERED, ALLOWED))
        )
        circle.house.include("allowing.yaml", yaml.safe_dump({"pipelines": [ALLOWING]}))
        with circle.ductile(), services(circle) as ready:
            ready.result(STARTS_WITHIN_S)
            yield circle


def _options(circle: Circle) -> DevOptions:
    """Both services with the settings of the guide but for addresses, and a tool that the tests need."""
    (circle.folder / "script.yaml").write_text(yaml.safe_dump(SCRIPT))
    shown, port = guide_settings(), int(circle.agent.rpartition(":")[2])
    gateway, tokens = shown["gateway"], shown["agent"]["http"]["tokens"]
    gateway["ductile"]["url"] = gateway["outbound"]["relay"]["url"] = circle.house.url
    peer = gateway["ingress"]["peers"]["ductile"]
    peer |= guide_peer()
    peer["accept"] += [ANSWER, ALLOWED]
    peer["events"][ALLOWED] = ALLOWS
    gateway["ingress"] |= {"port": int(circle.ingress.rpartition(":")[2])}
    gateway["tools"]["probe"] = {"commands": ["look"]}
    gateway["tools"]["shout"] = {"plugin": "echo", "commands": ["handle"], "approve": "always"}
    return DevOptions(
        folder=circle.folder / "stack",
        http_port=port,
        script=circle.folder / "script.yaml",
        plugins=(),
        sync_interval="1s",
        agent={"http": {"host": "127.0.0.1", "port": port, "tokens": tokens}},
        gateway=gateway,
    )


def _with_the_page(wake: Any, circle: Circle) -> None:
    """The schedule's goal is the page of the test."""
    payload = wake["schedules"][0]["payload"]
    payload["goal"] = payload["goal"].replace("https://example.org/", f"{circle.page}?scheduled")


def _with_the_probe(plugins: Any, circle: Circle) -> None:
    """The page is at an address that is not public; and nothing is kept in the home of who runs the tests."""
    plugins["fetch"]["config"]["allow_private"] = True
    plugins["knowledge"]["config"]["cache"] = str(circle.folder / "knowledge")
    plugins["probe"] = {"enabled": True, "config": {"executions": str(circle.record)}}
