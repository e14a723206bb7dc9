"""Agentic Loop: NATS (`sync_interval: always`), agent and gateway as processes, runs started and awaited over the
bus.

`function`: the tool is a function in the gateway's process, as with the other runtimes; it is declared as a write
and its call is recorded as one, but it writes nothing (0.02 ms). `process`: the tool is a plugin, a shell script in
a box, with one process per call that outlives the gateway.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import yaml

from agent_service.workbench.dev import DevStack, stack
from agent_service.workbench.dev_settings import DevOptions
from agentic_client import AsyncClient
from schemas import subjects
from tests.bench.load import Load
from tests.e2e.storm import script, times_run, write_tool
from tests.kit.stack import linked
from tests.peers import job

ENDED_WITHIN_S = 120.0
TOOLS = {"function": ("echo", "write"), "process": ("ledger", "note")}


class OnAgentic:
    def __init__(self, made: DevStack, load: Load) -> None:
        self._made = made
        self._load = load

    async def run(self, name: str) -> None:
        async with asyncio.timeout(ENDED_WITHIN_S):
            if (ending := await self._load.run(name)) != subjects.COMPLETED:
                raise RuntimeError(f"{name} did not complete: {ending}")

    async def go_on(self, name: str) -> bool:
        async with AsyncClient(self._made.url) as client:
            accepted = await client.wake(name, wake_id=name)
            return (await client.wait(accepted, timeout_s=ENDED_WITHIN_S)).status == "done"


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
    async with stack(options(folder, tools)) as made, linked(made.nats.url) as link:
        load = Load(link)
        await load.listen()
        await job.serve(OnAgentic(made, load), lambda: times_run(folder / job.WRITES))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
