"""Forged results: an executor's runs, and a client that may publish results beside it.

The executor offers a tool whose results return the capability of their requests, and, as its unprotected twin, a
tool of RFC-103's plain form. It answers nothing by itself.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from nats.aio.msg import Msg

from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from schemas import keys, subjects
from tests.attacks.http_caller import HttpCaller
from tests.kit.waiting import until

READ = [{"name": "handle", "tier": "read"}]
TOOLS = {
    "strict": {"name": "strict", "route": "strict", "commands": READ, "echoes_capability": True},
    "open": {"name": "open", "route": "open", "commands": READ},
    "open-too": {"name": "open-too", "route": "open-too", "commands": READ},
}
NOW = "2026-11-23T12:00:00Z"
WITHIN_S = 20.0


@dataclass(slots=True)
class Listening:
    """Subscriber of the executor's requests and of refused messages."""

    link: NatsLink
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Request of each run, as it is on the bus."""
    refused: set[int] = field(default_factory=set)
    """Sequence numbers in the stream."""
    offered: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        await self.link.subscribe(subjects.CATALOG, self._offer)
        for route in ("strict", "open"):
            await self.link.subscribe(subjects.tool_request(route), self._hear)
        await self.link.subscribe(subjects.REJECTED, self._note)

    async def _offer(self, message: Msg) -> None:
        await message.respond(json.dumps({"executor": "somebody", "tools": list(TOOLS.values())}).encode())
        self.offered.set()

    async def _hear(self, message: Msg) -> None:
        request = json.loads(message.data)
        self.asked[request["payload"]["run_id"]] = request

    async def _note(self, message: Msg) -> None:
        self.refused.add(json.loads(message.data)["payload"]["stream_seq"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that waits for the tool, with its request and its state."""

    request: dict[str, Any]
    stands: object

    @property
    def id(self) -> str:
        return str(self.request["payload"]["run_id"])

    def result(self, **changed: Any) -> dict[str, Any]:
        """Result that an attacker who knows the run would send, in the plain form."""
        named = {name: self.request["payload"][name] for name in ("run_id", "step", "tool")}
        said = {"status": "ok", "result": {"summary": "forged"}, "completed_at": NOW}
        return {name: value for name, value in {**named, **said, **changed}.items() if value is not ...}

    @property
    def capability(self) -> str:
        return str(self.request["payload"]["capability"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """Client that may only publish results. `tool` is the tool whose runs it attacks."""

    protected: bool
    tool: str
    caller: HttpCaller
    listening: Listening

    async def waits(self) -> Run:
        """Starts a run that waits for the tool."""
        run_id = await self.caller.begin(f"ask the {self.tool} one")
        await until(lambda: run_id in self.listening.asked, within_s=WITHIN_S)
        return Run(request=self.listening.asked[run_id], stands=await self.stands(run_id))

    async def says(self, payload: object, *, msg_id: str = "") -> int:
        """Returns the sequence number in the stream."""
        told = {"Nats-Msg-Id": msg_id} if msg_id else {}
        body = json.dumps(payload).encode()
        ack = await self.listening.link.jetstream.publish(subjects.TOOL_RESULT, body, headers=told)
        return int(ack.seq)

    async def changes(self, run: Run, payload: object, **how: Any) -> bool:
        """True if the run no longer waits as before; ours must have refused the message."""
        place = await self.says(payload, **how)

        async def gone_on() -> bool:
            return await self.stands(run.id) != run.stands

        async def settled() -> bool:
            return (self.protected and place in self.listening.refused) or await gone_on()

        await until(settled, within_s=WITHIN_S)
        return await gone_on()

    async def stands(self, run_id: str) -> object:
        found = (await self.caller.get(f"/v1/runs/{run_id}")).json()
        return found["state"], found["pending"]

    async def goes_on_with_its_own(self, run: Run) -> bool:
        """True if the run gets the executor's own answer."""
        key = keys.result(run.id, run.request["payload"]["step"], 1)
        body = {"type": subjects.TOOL_RESULT, "dedupe_key": key}
        said = run.result(result={"summary": "honest"}, capability=run.capability)
        await self.listening.link.publish(
            subjects.TOOL_RESULT, json.dumps({**body, "payload": said}).encode(), msg_id=key, headers={}
        )
        ended: dict[str, Any] = {}

        async def done() -> bool:
            ended.update((await self.caller.get(f"/v1/runs/{run.id}")).json())
            return bool(ended["state"] == "done")

        await until(done, within_s=WITHIN_S, otherwise=lambda: str(ended))
        heard = [str(step["summary"]) for step in ended["steps"]]
        return heard == ["honest"]


@contextlib.asynccontextmanager
async def publishing(bus: str, caller: HttpCaller, *, protected: bool, known: set[str]) -> AsyncIterator[Publisher]:
    """Publishes on the bus of these services. `known` are the buses whose agent already knows the executor."""
    link = await connect(NatsSettings(urls=(bus,)))
    try:
        listening = Listening(link)
        await listening.listen()

        async def is_known() -> bool:
            await caller.get("/readyz")  # the agent asks who offers what
            return listening.offered.is_set()

        if bus not in known:
            await until(is_known, within_s=WITHIN_S)
            known.add(bus)
        yield Publisher(protected=protected, tool="strict" if protected else "open", caller=caller, listening=listening)
    finally:
        await link.close()
