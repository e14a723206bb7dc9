"""What end-to-end tests share: a stack with a script of their own, and looks at what it left."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx2
import yaml

from agent_service.workbench.dev import DevOptions, DevStack, stack
from groundwork.nats import link as nats_link
from groundwork.nats.link import NatsLink
from groundwork.nats.settings import NatsSettings
from tests.kit.fleet import recorded
from tests.kit.waiting import until

PROBES = Path(__file__).resolve().parent.parent / "plugins"
ENDED = {"done", "escalated", "failed", "cancelled"}
FRAME = {
    "phase": "frame",
    "frame": {"goal_statement": "Record.", "definition_of_done": ["one", "two", "three"]},
}


class Answering(Protocol):
    """A stack, or one agent of several."""

    @property
    def url(self) -> str: ...


def recording(file: Path, *, go: Path | None = None, steps: int = 2) -> dict[str, Any]:
    """A script that records `steps` lines in `file` with a write-tier tool, which waits each time for `go<n>`."""

    def plan(step: int) -> dict[str, Any]:
        wait = {"wait_for": f"{go}{step}"} if go else {}
        return {"action": {"tool": "probe", "command": "record", "arguments": {"file": str(file), **wait}}}

    met = [{"item": f"d{n}", "evidence": "step:1"} for n in (1, 2, 3)]
    on = [
        {
            "phase": "reflect",
            "when": {"steps": n},
            "reflect": {"verdict": "continue", "summary": "on"},
            "plan": plan(n + 1),
        }
        for n in range(1, steps)
    ]
    end = {"phase": "reflect", "reflect": {"verdict": "done", "summary": "recorded", "met": met}}
    return {"name": "recording", "rules": [FRAME, {"phase": "plan", "plan": plan(1)}, *on, end]}


@asynccontextmanager
async def running(
    folder: Path,
    script: Mapping[str, Any],
    *,
    agent: Mapping[str, Any] | None = None,
    gateway: Mapping[str, Any] | None = None,
    sync_interval: str = "1s",
    marks: Iterable[Path] = (),
) -> AsyncIterator[DevStack]:
    """The whole stack, following `script`, with the probe among its tools. `marks`: where this writes, too."""
    path = written(script, folder)
    options = DevOptions(
        folder=folder,
        script=path,
        plugins=(PROBES,),
        plugin_config={"probe": {str(n): str(place) for n, place in enumerate((*recorded(path), *marks))}},
        agent=agent or {},
        gateway=gateway or {},
        sync_interval=sync_interval,
    )
    async with stack(options) as made:
        yield made


def written(script: Mapping[str, Any], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "script.yaml"
    path.write_text(yaml.safe_dump(dict(script)))
    return path


async def wake(made: Answering, goal: str = "record", **more: Any) -> str:
    """The id of a new run."""
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
        answer = await client.post("/v1/wake", json={"goal": goal, **more})
        assert answer.status_code == 202, answer.text
        run_id: str = answer.json()["run_id"]
        return run_id


async def view(made: Answering, run_id: str) -> dict[str, Any]:
    """Where the run stands; an empty one while the agent is away."""
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
        try:
            found: dict[str, Any] = (await client.get(f"/v1/runs/{run_id}")).json()
        except httpx2.TransportError:
            return {"state": "away"}
        return found


async def to_the_end(made: Answering, run_id: str, *, within_s: float = 60.0) -> dict[str, Any]:
    """The run's view once it has ended."""
    found: dict[str, Any] = {}

    async def ended() -> bool:
        found.update(await view(made, run_id))
        return found["state"] in ENDED

    await until(ended, within_s=within_s)
    return found


def touch(go: Path, step: int) -> None:
    """Let the tool of a step answer."""
    Path(f"{go}{step}").touch()


def lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


async def on_the_bus(made: DevStack, subject: str) -> list[dict[str, Any]]:
    """The payloads of everything that the stream of work holds of `subject`."""
    link = await nats_link.connect(NatsSettings(urls=(made.nats.url,)))
    try:
        return [json.loads(body)["payload"] for body in await _stored(link, subject)]
    finally:
        await link.close()


async def _stored(link: NatsLink, subject: str) -> list[bytes]:
    subscription = await link.jetstream.subscribe(subject, ordered_consumer=True)
    bodies = []
    try:
        while True:
            bodies.append((await subscription.next_msg(timeout=0.5)).data)
    except TimeoutError:
        return bodies
    finally:
        await subscription.unsubscribe()
