"""The paper trail is there soon after its run's end, also where the agent was killed in between."""

import time
from pathlib import Path

from tests.e2e.bodies import recording, running, to_the_end, wake
from tests.kit.waiting import until


async def test_the_folder_is_there_within_a_second_of_the_run_s_end(tmp_path: Path) -> None:
    async with running(tmp_path, recording(tmp_path / "marks" / "lines", steps=2)) as made:
        await to_the_end(made, await wake(made))  # the process that writes it is there from now on
        run_id = await wake(made, wake_id="another")
        await to_the_end(made, run_id)
        began, memory = time.monotonic(), made.workspaces / run_id / "memory.md"
        await until(lambda: memory.exists() and "**Ended: done**" in memory.read_text())
        assert time.monotonic() - began < 1.0
