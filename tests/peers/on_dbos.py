"""DBOS: a workflow of steps in one process, on SQLite as DBOS opens it (rollback journal, synchronous=FULL).

After a crash it resumes when the process starts again. DBOS recommends PostgreSQL for production.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

from tests.peers.job import decide, serve, times_written, write


class OnDbos:
    def __init__(self, folder: Path) -> None:
        async def think(step: int) -> dict[str, Any]:
            return decide(step)

        async def act(run: str, line: str) -> str:
            return write(folder, run, line)

        thinking, acting = DBOS.step()(think), DBOS.step()(act)

        async def job(run: str) -> int:
            step = 0
            while (decision := await thinking(step))["verdict"] != "done":
                await acting(run, decision["arguments"]["line"])
                step += 1
            return step

        self._job = DBOS.workflow()(job)

    async def run(self, name: str) -> None:
        with SetWorkflowID(name):
            await self._job(name)

    async def go_on(self, name: str) -> bool:
        if await DBOS.get_workflow_status_async(name) is None:
            await self.run(name)
            return True
        handle = await DBOS.retrieve_workflow_async(name)
        return bool(await handle.get_result())


async def main(folder: Path) -> None:
    DBOS(
        config={
            "name": "peers",
            "system_database_url": f"sqlite:///{folder / 'dbos.sqlite'}",
            "application_version": "1",
            "run_admin_server": False,
            "log_level": "WARNING",
        }
    )
    runtime = OnDbos(folder)
    DBOS.launch()
    await serve(runtime, lambda: times_written(folder))
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
