"""An agent whose tools the test plays over raw NATS."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import api

from agent_service import app
from agent_service.bus.topology import topology
from agent_service.settings import load
from agent_service.workbench.dev import free_port
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import set_up
from schemas import subjects
from tests.kit.bus import server_with
from tests.kit.stack import is_ready, linked, post, until, written

READ = {"name": "look", "route": "look", "commands": [{"name": "handle", "tier": "read"}]}
WRITE = {"name": "put", "route": "put", "commands": [{"name": "handle", "tier": "write"}]}


@dataclass(slots=True)
class Bench:
    """The agent is in this process: it starts 20 times faster than one in its own."""

    folder: Path
    config: Path
    url: str
    link: NatsLink
    offers: Sequence[dict[str, Any]]
    requests: list[dict[str, Any]] = field(default_factory=list)
    heard: list[dict[str, Any]] = field(default_factory=list)
    """All requests, repetitions included."""
    serving: asyncio.Task[None] = field(init=False)

    def start(self) -> None:
        self.serving = asyncio.create_task(app.serve(load(self.config, {})))

    async def stop(self) -> None:
        """Stops the agent as a signal would. Raises the error that it failed with."""
        self.serving.cancel()
        with suppress(asyncio.CancelledError):
            await self.serving

    @property
    def client(self) -> Client:
        return self.link.client

    async def set_up(self) -> None:
        await set_up(self.link, topology(max_gib=1))

    async def publish(self, subject: str, message: object, *, msg_id: str | None = None) -> api.PubAck:
        """Publishes JSON, or text that is none, without the agent's signature."""
        body = message if isinstance(message, str) else json.dumps(message)
        headers = {"Nats-Msg-Id": msg_id} if msg_id else None
        return await self.client.jetstream().publish(subject, body.encode(), headers=headers)

    async def answer(self, request: Mapping[str, Any], *, msg_id: str | None = None, **changes: Any) -> api.PubAck:
        """Publishes a result in the form of RFC-103; `changes` to its payload, where null removes a field."""
        payload = {key: request[key] for key in ("run_id", "step", "tool")} | {
            "status": "ok",
            "result": {"summary": "seen"},
            "error": None,
            "completed_at": "2026-11-21T12:00:00Z",
        }
        payload = {key: value for key, value in (payload | changes).items() if value is not None}
        key = f"agentic:run:{request['run_id']}:step:{request['step']}:result"
        message = {"type": subjects.TOOL_RESULT, "payload": payload, "dedupe_key": key}
        return await self.publish(subjects.TOOL_RESULT, message, msg_id=msg_id or key)

    async def request(self, number: int, of: str = "") -> dict[str, Any]:
        """Waits for the `number`-th request, counted from 1, of this run or of any, and returns its payload."""
        await until(lambda: len(self.asked(of)) >= number)
        return self.asked(of)[number - 1]

    def asked(self, of: str) -> list[dict[str, Any]]:
        return [request for request in self.requests if not of or request["run_id"] == of]

    async def wake(self, wake_id: str, **more: Any) -> httpx2.Response:
        return await post(self, "/v1/wake", **{"goal": "record", "wake_id": wake_id, **more})

    async def begun(self, wake_id: str, **more: Any) -> tuple[str, dict[str, Any]]:
        run_id = (await self.wake(wake_id, **more)).json()["run_id"]
        return run_id, await self.request(1, run_id)

    async def restart(self) -> None:
        await self.stop()
        self.start()
        await until(lambda: is_ready(self))

    async def _serve_catalog(self, message: Msg) -> None:
        if self.offers:  # else it knows of no catalog
            await message.respond(json.dumps({"revision": "1", "tools": [*self.offers]}).encode())

    async def _take(self, message: Msg) -> None:
        request = json.loads(message.data)["payload"]
        self.heard.append(request)
        if request not in self.requests:  # what the stream drops as said before is heard here too
            self.requests.append(request)

    async def listen(self) -> None:
        await self.client.subscribe(subjects.CATALOG, cb=self._serve_catalog)
        await self.client.subscribe(subjects.ALL_TOOL_REQUESTS, cb=self._take)


@asynccontextmanager
async def bench(
    folder: Path,
    rules: Mapping[str, Any],
    *,
    max_payload: int = 1024 * 1024,
    offers: Sequence[dict[str, Any]] = (READ, WRITE),
    **agent: Any,
) -> AsyncIterator[Bench]:
    """An agent whose scripted model follows `rules`; `agent` holds further settings."""
    bus_port, http_port = free_port(), free_port()
    config = _written(folder, rules, agent, bus_port=bus_port, http_port=http_port)
    bus = {"jetstream": {"store_dir": str(folder / "nats")}, "max_payload": max_payload}
    async with server_with(folder, bus_port, bus) as address, linked(address) as link:
        made = Bench(folder, config, f"http://127.0.0.1:{http_port}", link, offers)
        await made.set_up()
        await made.listen()
        made.start()
        try:
            await until(lambda: made.serving.done() or is_ready(made))
            yield made
        finally:
            await made.stop()


def _written(
    folder: Path, rules: Mapping[str, Any], agent: Mapping[str, Any], *, bus_port: int, http_port: int
) -> Path:
    settings = {
        "store": str(folder / "agent"),
        "workspaces": str(folder / "workspaces"),
        "http": {"port": http_port},
        "model": {"provider": "scripted", "script": str(written(rules, folder))},
        **agent,
        "limits": {"retry_base_s": 0.1} | agent.get("limits", {}),
    }
    path = folder / "agentic.yaml"
    path.write_text(json.dumps({"nats": {"urls": [f"nats://127.0.0.1:{bus_port}"]}, "agent": settings}))
    return path
