"""Agentic Loop: NATS (`sync_interval: always`), agent and gateway as processes, runs started and awaited over the
bus.

`function`: the tool is a function in the gateway's process, as with the other runtimes; it is declared as a write
and its call is recorded as one, but it writes nothing (0.02 ms). `process`: the tool is a plugin, a shell script in
a box, with one process per call that outlives the gateway.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import yaml
from nats.aio.msg import Msg

from agent_service.workbench.dev import DevStack, stack
from agent_service.workbench.dev_settings import DevOptions
from agentic_client import AsyncClient
from groundwork.nats import link as nats_link
from groundwork.nats.link import NatsLink
from groundwork.nats.settings import NatsSettings
from schemas import keys, subjects
from tests.e2e.storm import script, times_run, write_tool
from tests.peers import job

ENDED_WITHIN_S = 120.0
TOOLS = {"function": ("echo", "write"), "process": ("ledger", "note")}


class OnAgentic:
    def __init__(self, made: DevStack, link: NatsLink) -> None:
        self._made = made
        self._link = link
        self._ended: dict[str, asyncio.Future[None]] = {}

    async def listen(self) -> None:
        for subject in subjects.ENDINGS:
            await self._link.subscribe(subject, self._take)

    async def run(self, name: str) -> None:
        ended = self._ended[name] = asyncio.get_running_loop().create_future()
        key = keys.start(name)
        body = json.dumps({"type": subjects.START, "payload": {"goal": name}, "dedupe_key": key}).encode()
        await self._link.publish(subjects.START, body, msg_id=key, headers={})
        async with asyncio.timeout(ENDED_WITHIN_S):
            await ended

    async def go_on(self, name: str) -> bool:
        async with AsyncClient(self._made.url) as client:
            accepted = await client.wake(name, wake_id=name)
            return (await client.wait(accepted, timeout_s=ENDED_WITHIN_S)).status == "done"

    async def _take(self, message: Msg) -> None:
        goal = json.loads(message.data)["payload"]["goal"]
        waiting = self._ended.pop(goal, None)
        if waiting is None:
            return
        if message.subject == subjects.COMPLETED:
            waiting.set_result(None)
        else:
            waiting.set_exception(RuntimeError(f"{goal} did not complete: {message.data[:500]!r}"))


def options(folder: Path, tools: str) -> DevOptions:
    tool, command = TOOLS[tools]
    plugins, calls, decisions = folder / "plugins", folder / job.WRITES, folder / "script.yaml"
    if not calls.exists():
        write_tool(plugins, calls)
        decisions.write_text(yaml.safe_dump(script(tool=tool, command=command)))
    gateway: dict[str, Any] = {
        "slots": 256,
        "concurrency": 256,
        "log": {"level": "warning"},
        "plugins": {"folders": [str(plugins)], "write": [str(calls)]},
    }
    return DevOptions(
        folder=folder / "stack",
        script=decisions,
        plugins=(plugins,),
        agent={"log": {"level": "warning"}},
        gateway=gateway | ({"runner": "in_process"} if tools == "function" else {}),
    )


async def main(folder: Path, tools: str) -> None:
    async with stack(options(folder, tools)) as made:
        link = await nats_link.connect(NatsSettings(urls=(made.nats.url,)), name="peers")
        try:
            runtime = OnAgentic(made, link)
            await runtime.listen()
            await job.serve(runtime, lambda: times_run(folder / job.WRITES))
        finally:
            await link.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
