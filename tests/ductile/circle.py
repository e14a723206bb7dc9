"""The whole circle on one machine: a real Ductile with the sample configuration, and both services with the guide's.

The sample is put in place as the README beside it says, agents are added as the installation does it, and the pipelines
of the guide are used, which are not in use by themselves.
"""

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

import httpx2
import yaml

from agent_service.workbench.dev import DevOptions, free_port, stack
from ductile_gateway.installation.found import find
from ductile_gateway.installation.installing import installation
from ductile_gateway.installation.pages import Wishes
from groundwork.service.errors import Misconfigured
from tests.ductile.guide import (
    ANSWERING,
    PASSING_ON,
    SAMPLES,
    SECRETS,
    SETTINGS,
    add_file_handler,
    shown,
    shown_peer,
    text,
)
from tests.ductile.real import DuctileProcess
from tests.kit.stack import ENDED, FRAME
from tests.kit.waiting import wait_until

OPERATOR_TOKEN = "an-operator-token-for-tests"  # noqa: S105 - of a server that lives for one test
AGENTIC = "agentic/yours.yaml"
"""What of that which adds agents to any Ductile is for people to change."""
STARTS_WITHIN_S = 60.0
ANSWER, ANSWERED, ALLOWED = "answer.found", "person.answered", "person.allowed"
ALLOW = {"run_id": "payload.run_id", "hash": "payload.arguments_hash"}
TELL = {"id": "tell", "relay": {"to": "agentic-gateway", "event": ALLOWED, "with": ALLOW}}
ALLOWING = {"name": "allow-at-once", "on": "agent.waiting", "steps": [TELL]}
"""A person who allows whatever is asked, as a pipeline of Ductile."""
ALLOWS = {
    "to": "agentic.signal",
    "kind": "approve",
    "run_id": "/payload/run_id",
    "arguments_hash": "/payload/hash",
}


def acts(tool: str, command: str, **arguments: Any) -> dict[str, Any]:
    return {"action": {"tool": tool, "command": command, "arguments": arguments}}


SEATS: dict[str, Any] = {
    "variables": {"seats": "int", "cost": "int"},
    "constraints": [{"name": "budget", "expr": "cost <= 10000"}, "cost = seats * 900", "seats >= 12"],
}
PAGE, ALONE = r"(?P<url>https?://\S+)", "alone$"
MET = [{"item": item, "evidence": "step:1"} for item in ("d1", "d2", "d3")]
DONE = {"verdict": "done", "summary": "It is done.", "met": MET, "outcome": "The last tool was $tool."}
GIVE_UP = {"verdict": "escalate", "summary": "Nobody said which.", "outcome": "Which of the two?"}
GO_ON = {"verdict": "continue", "summary": "The first half is done."}
REPORT, ECHO = acts("text-report", "handle", artifact="$artifact"), acts("echo", "handle", message="It was held.")
SCRIPT: dict[str, Any] = {
    "name": "circle",
    "rules": [
        FRAME,
        {"phase": "plan", "when": {"goal": PAGE}, "plan": acts("fetch", "handle", url="$url")},
        {"phase": "reflect", "when": {"goal": PAGE, "tool": "fetch"}, "reflect": GO_ON, "plan": REPORT},
        {"phase": "plan", "when": {"goal": "aloud$"}, "plan": acts("shout", "handle", message="Hello!")},
        {"phase": "plan", "when": {"goal": "^equip"}, "plan": acts("z3-solver", "solve", **SEATS)},
        {"phase": "plan", "when": {"goal": ALONE}, "plan": ECHO},
        {"phase": "reflect", "when": {"goal": ALONE, "feedback": "handed to a person"}, "reflect": DONE},
        {"phase": "reflect", "when": {"goal": ALONE}, "reflect": GIVE_UP},
        {"phase": "reflect", "reflect": DONE},
    ],
}
"""A goal with an address takes two tools. One that ends in `alone` is given up after one tool, and reached once
a person has answered; one that ends in `aloud` takes a tool that a person has to allow. One that begins with `equip`
takes a tool that has to look something up before it answers."""


@dataclass(frozen=True, slots=True)
class Circle:
    """A Ductile, the services beside it, and a page to fetch."""

    folder: Path
    ductile: DuctileProcess
    agent: str
    page: str

    @property
    def outcomes(self) -> Path:
        return self.ductile.folder.parent / "outcomes"

    def in_ductile(self, method: str, path: str, **options: Any) -> Any:
        return _asked(self.ductile.url + path, OPERATOR_TOKEN, method, **options)

    def jobs(self, plugin: str) -> list[dict[str, Any]]:
        """The jobs of a plugin, the newest first."""
        return list(self.in_ductile("GET", f"/jobs?plugin={plugin}")["jobs"])

    def wake(self, goal: str) -> str:
        """The id of a new run."""
        woken = _asked(f"{self.agent}/v1/wake", SECRETS["AGENTIC_WAKE_TOKEN"], "POST", json={"goal": goal})
        return str(woken["run_id"])

    def read(self, path: str) -> Any:
        """What the agent says to people."""
        return _asked(f"{self.agent}/v1/runs{path}", SECRETS["AGENTIC_TOKEN"])

    def entries(self, run_id: str, kind: str) -> list[Any]:
        """What the journal of a run has of these events."""
        found = self.read(f"/{run_id}/entries")["entries"]
        return [entry["event"] for entry in found if entry["kind"] == kind]

    def ended(self, run_id: str) -> dict[str, Any]:
        """The run, once it has ended."""
        wait_until(lambda: self.read(f"/{run_id}")["state"] in ENDED, lambda: str(self.read(f"/{run_id}")))
        run: dict[str, Any] = self.read(f"/{run_id}")
        return run

    def kept(self, name: str) -> str:
        """A file that Ductile keeps of a run, once it does."""
        file = self.outcomes / name
        wait_until(lambda: file.exists() and file.read_text(), lambda: f"no {name}: {self.jobs('file_handler')}")
        return file.read_text()

    def started(self, part: str) -> str:
        """The id of the one run that has this in its goal, once it is there."""

        def found() -> list[str]:
            return [str(run["run_id"]) for run in self.read("")["runs"] if part in run["goal"]]

        wait_until(found, lambda: f"no run for {part}")
        (run_id,) = found()
        return run_id


def _asked(url: str, token: str, method: str = "GET", **options: Any) -> Any:
    answer = httpx2.request(method, url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, **options)
    assert answer.is_success, answer.text
    return answer.json()


class _Pages(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def running(folder: Path) -> Iterator[Circle]:
    """Everything started."""
    place = Path(str(resources.files("agent_service"))) / "scripts"
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, directory=str(place))) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        api, agent, ingress = (f"http://127.0.0.1:{free_port()}" for _ in range(3))
        ductile = DuctileProcess(folder / "house" / "ductile", api)
        circle = Circle(folder, ductile, agent, f"http://127.0.0.1:{pages.server_port}/page.html")
        _put_in_place(circle)
        _add_agents(circle, gateway=ingress)
        ductile.lock()
        try:
            ductile.start()
            with _services(_options(circle, ingress)):
                yield circle
        finally:
            ductile.kill()
            pages.shutdown()


def change(file: Path, changes: Callable[[Any], object]) -> None:
    """Change the content of a file of YAML."""
    content = yaml.safe_load(file.read_text())
    changes(content)
    file.write_text(yaml.safe_dump(content))


def _put_in_place(circle: Circle) -> None:
    """A copy of the sample: its own ports, a token for the test, and pages beside it."""
    folder = circle.ductile.folder
    circle.outcomes.mkdir(parents=True)
    shutil.copytree(SAMPLES / "config-m", folder)
    for plugin in (each for each in (SAMPLES / "plugins").iterdir() if not each.name.startswith("agentic-")):
        shutil.copytree(plugin, folder / "plugins" / plugin.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(SAMPLES.parent / "knowledge", folder / "knowledge")
    add_file_handler(folder / "plugins" / "file_handler")
    add_people(folder)

    def ports(config: Any) -> None:
        config["service"]["tick_interval"] = "500ms"
        config["api"]["listen"] = circle.ductile.url.removeprefix("http://")
        config["webhooks"] = {"listen": f"127.0.0.1:{free_port()}"}
        config["include"] += ["answering.yaml", "passing-on.yaml", "allowing.yaml"]

    def plugins(content: Any) -> None:
        """The page is at an address that is not public; and nothing is kept in the home of who runs the tests."""
        content["plugins"]["fetch"]["config"]["allow_private"] = True
        content["plugins"]["knowledge"]["config"] |= {
            "folder": str(folder / "knowledge"),
            "cache": str(circle.folder / "knowledge"),
        }

    pipelines = {"answering": text(ANSWERING), "passing-on": text(PASSING_ON), "allowing": yaml.safe_dump([ALLOWING])}
    for name, content in pipelines.items():
        (folder / f"{name}.yaml").write_text(f"pipelines:\n{content}")
    change(folder / "config.yaml", ports)
    change(folder / "plugins.yaml", plugins)


def add_people(folder: Path) -> None:
    """The sample includes a file that is made by hand."""
    people = {"api": {"auth": {"tokens": [{"token": OPERATOR_TOKEN, "scopes": ["*"]}]}}}
    (folder / "people.yaml").write_text(yaml.safe_dump(people))


def _add_agents(circle: Circle, *, gateway: str) -> None:
    """As the installation does it, with secrets that the test knows; the schedule's goal is the page of the test."""
    folder, home = circle.ductile.folder, circle.folder / "house" / "agent"
    (secrets := home / ".agentic" / "secrets").mkdir(parents=True)
    for name in ("DUCTILE_GATEWAY_TOKEN", "DUCTILE_RELAY_SECRET", "AGENTIC_WAKE_TOKEN", "AGENTIC_RUN_TOKEN"):
        (secrets / f"ductile.{name.split('_')[1].lower()}").write_text(SECRETS[name])
    (secrets / "ductile.webhook").write_text("a-webhook-secret-for-tests")
    wishes = Wishes(
        agent=circle.agent,
        gateway=gateway,
        settings=home / "agentic.yaml",
        outcomes=circle.outcomes,
        webhook=True,
        goal=f"Fetch {circle.page}?scheduled and write a critique of the page in two paragraphs.",
        every="24h",
    )
    installation(find(folder), wishes).carry_out(None)

    def yours(content: Any) -> None:
        content["plugins"]["agentic-wake"]["retry"].update(backoff_base="200ms")
        content["instances"][0]["allow"] += [ANSWER, ANSWERED, ALLOWED]

    change(folder / AGENTIC, yours)


def _options(circle: Circle, ingress: str) -> DevOptions:
    """Both services with the settings of the guide but for addresses, and a tool that the tests need."""
    script, port = circle.folder / "script.yaml", int(circle.agent.rpartition(":")[2])
    script.write_text(yaml.safe_dump(SCRIPT))
    settings = shown(SETTINGS)
    gateway, tokens = settings["gateway"], settings["agent"]["http"]["tokens"]
    gateway["ductile"]["url"] = gateway["outbound"]["relay"]["url"] = circle.ductile.url
    peer = gateway["ingress"]["peers"]["ductile"]
    peer |= shown_peer()
    peer["accept"] += [ANSWER, ALLOWED]
    peer["events"][ALLOWED] = ALLOWS
    gateway["ingress"] |= {"port": int(ingress.rpartition(":")[2])}
    gateway["tools"]["shout"] = {"plugin": "echo", "commands": ["handle"], "approve": "always"}
    return DevOptions(
        folder=circle.folder / "stack",
        http_port=port,
        script=script,
        plugins=(),
        sync_interval="1s",
        agent={"http": {"host": "127.0.0.1", "port": port, "tokens": tokens}},
        gateway=gateway,
    )


@contextmanager
def _services(options: DevOptions) -> Iterator[None]:
    """The bus, the agent and the gateway, in an event loop of their own."""
    ready: Future[None] = Future()
    enough = threading.Event()

    async def serve() -> None:
        try:
            async with stack(options):
                ready.set_result(None)
                await asyncio.to_thread(enough.wait)
        except Misconfigured as error:
            ready.set_exception(error)

    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(asyncio.run, serve())
        try:
            ready.result(STARTS_WITHIN_S)
            yield
        finally:
            enough.set()
            ended.result(STARTS_WITHIN_S)
