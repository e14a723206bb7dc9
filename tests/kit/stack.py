"""Real processes: a bus with both services, single services, scripts for their models, and access to what they left.

Functions that ask a service take anything with a `url`: a stack, an agent by hand, a member of a fleet.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import httpx2
import yaml

from agent_service.workbench.dev import DevStack, stack
from agent_service.workbench.dev_settings import DevOptions
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.publishing import StoredMessage
from groundwork.nats.settings import NatsSettings
from groundwork.nats.shared_log import stored_by_now
from tests.kit import waiting
from tests.kit.processes import Service

PROBES = Path(__file__).resolve().parent.parent / "plugins"
ENDED = {"done", "escalated", "failed", "cancelled"}
FRAME = {
    "phase": "frame",
    "frame": {"goal_statement": "Record.", "definition_of_done": ["one", "two", "three"]},
}
MET = [{"item": f"d{n}", "evidence": "step:1"} for n in (1, 2, 3)]
DONE = {"phase": "reflect", "reflect": {"verdict": "done", "summary": "done", "met": MET}}
WAITS_S = 20
WITHIN_S = 60.0

until = partial(waiting.until, within_s=WITHIN_S)


class Answering(Protocol):
    @property
    def url(self) -> str: ...


def action(tool: str, command: str = "handle", **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "command": command, "arguments": arguments}


def planning(tool: str, command: str = "handle", **arguments: Any) -> dict[str, Any]:
    return {"phase": "plan", "plan": {"action": action(tool, command, **arguments)}}


def of_goal(goal: str, *rules: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Restricts rules to goals that match this pattern."""
    return [{**rule, "when": {**rule.get("when", {}), "goal": goal}} for rule in rules]


def script(*rules: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "played", "rules": [FRAME, *rules]}


def one_step(tool: str) -> dict[str, Any]:
    return script(planning(tool), DONE)


def one_after_another(first: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    """A script that follows these plans and is done."""
    on = {"phase": "reflect", "reflect": {"verdict": "continue", "summary": "on"}}
    return script(
        first, *({**on, "when": {"steps": n}, "plan": other["plan"]} for n, other in enumerate(others, start=1)), DONE
    )


def slowed(rules: dict[str, Any], wait_s: float) -> dict[str, Any]:
    return rules | {"rules": [rule | {"wait_s": wait_s} for rule in rules["rules"]]}


def recording(file: Path, *, go: Path | None = None, steps: int = 2) -> dict[str, Any]:
    """A script that records `steps` lines in `file` with a write-tier tool, which waits for `go<n>` before each."""

    def plan(step: int) -> dict[str, Any]:
        return planning("probe", "record", file=str(file), **({"wait_for": f"{go}{step}"} if go else {}))

    return one_after_another(*map(plan, range(1, steps + 1)))


def written(rules: Mapping[str, Any], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "script.yaml"
    path.write_text(yaml.safe_dump(dict(rules)))
    return path


def recorded(rules: Mapping[str, Any]) -> tuple[Path, ...]:
    """Makes the folders in which tools write by that script."""
    planned = [rule["plan"]["action"].get("arguments", {}) for rule in rules["rules"] if "plan" in rule]
    folders = {Path(arguments["file"]).parent for arguments in planned if "file" in arguments}
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    return tuple(folders)


@asynccontextmanager
async def running(
    folder: Path,
    rules: Mapping[str, Any],
    *,
    plugins: tuple[Path, ...] = (PROBES,),
    plugin_config: Mapping[str, Any] | None = None,
    **services: Any,
) -> AsyncIterator[DevStack]:
    """The whole stack with the probe among its tools, following a script; killed services are restarted.

    `services` holds settings of `agent` and `gateway`.
    """
    places = {"probe": {str(n): str(place) for n, place in enumerate(recorded(rules))}}
    options = DevOptions(
        folder=folder,
        script=written(rules, folder),
        plugins=plugins,
        plugin_config=places | dict(plugin_config or {}),
        sync_interval="1s",
        **services,
    )
    async with stack(options) as made:
        yield made


@asynccontextmanager
async def another(package: str, config: Path, *options: str) -> AsyncIterator[Service]:
    """Starts another service beside a stack on the same bus. It is not restarted."""
    other = Service(package, config, config.with_suffix(f".{package}.log"), *options)
    other.start()
    try:
        yield other
    finally:
        other.kill()


async def ready(service: Service) -> str:
    """Waits until it is ready and returns the URL of its API; empty for a gateway."""
    await until(lambda: _said(service.log, "msg", "ready"))
    return str(_said(service.log, "msg", "ready")[-1].get("http", ""))


async def refused(service: Service) -> tuple[int, str]:
    """Waits for its end and returns its exit code and its last log line."""
    code = await service.ended()
    assert "Traceback" not in service.log.read_text()
    return code, last_word(service.log)


def with_store(config: Path, store: Path) -> Path:
    settings = json.loads(config.read_text())
    settings["agent"] |= {"store": str(store), "workspaces": str(store / "runs"), "http": {"port": 0}}
    store.mkdir(parents=True, exist_ok=True)
    path = store.with_suffix(".yaml")
    path.write_text(json.dumps(settings))
    return path


def last_word(log: Path) -> str:
    told = _said(log, "level", "CRITICAL")
    return str(told[-1]["msg"]) if told else ""


def _said(log: Path, field: str, text: str) -> list[dict[str, Any]]:
    lines = []
    for line in log.read_text().splitlines():
        with contextlib.suppress(ValueError):  # one that is being written
            lines.append(json.loads(line))
    return [line for line in lines if line[field] == text]


def api(made: Answering, *, timeout_s: float = WAITS_S + 20) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=made.url, trust_env=False, timeout=timeout_s)


async def get(made: Answering, path: str, **asked: Any) -> httpx2.Response:
    async with api(made) as client:
        return await client.get(path, params=asked)


async def post(made: Answering, path: str, **body: Any) -> httpx2.Response:
    async with api(made) as client:
        return await client.post(path, json=body)


async def wake(made: Answering, goal: str = "record", **more: Any) -> str:
    answer = await post(made, "/v1/wake", goal=goal, **more)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


async def view(made: Answering, run_id: str, **asked: Any) -> dict[str, Any]:
    """Returns the run's view; `away` while the agent is away."""
    try:
        found: dict[str, Any] = (await get(made, f"/v1/runs/{run_id}", **asked)).json()
    except httpx2.TransportError:
        return {"state": "away"}
    return found


async def entries(made: Answering, run_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await get(made, f"/v1/runs/{run_id}/entries")).json()["entries"]
    return found


async def shown(
    made: Answering, run_id: str, fact: Callable[[dict[str, Any]], object], *, within_s: float = WITHIN_S, **asked: Any
) -> dict[str, Any]:
    found: dict[str, Any] = await until(
        lambda: view(made, run_id, **asked), lambda seen: "run_id" in seen and fact(seen), within_s=within_s
    )
    return found


async def to_the_end(made: Answering, run_id: str) -> dict[str, Any]:
    return await shown(made, run_id, lambda found: found["state"] in ENDED, wait=WAITS_S)


async def is_ready(made: Answering) -> bool:
    async with api(made, timeout_s=2) as client:
        try:
            return (await client.get("/readyz")).is_success
        except httpx2.TransportError:
            return False


def touch(go: Path, *steps: int) -> None:
    for step in steps:
        Path(f"{go}{step}").touch()


def lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def linked(url: str) -> AbstractAsyncContextManager[NatsLink]:
    return connect(NatsSettings(urls=(url,)), "test")


async def messages(link: NatsLink, subject: str = ">", stream: str = "") -> AsyncIterator[StoredMessage]:
    """All messages of that subject now on the bus, from the stream that stores it."""
    stream = stream or await link.client.jetstream().find_stream_name_by_subject(subject)
    async for message in stored_by_now(link, stream, subject):
        yield message


async def payloads(link: NatsLink, subject: str) -> list[dict[str, Any]]:
    return [json.loads(message.body)["payload"] async for message in messages(link, subject)]


async def on_the_bus(made: DevStack, subject: str) -> list[dict[str, Any]]:
    async with linked(made.nats.url) as link:
        return await payloads(link, subject)
