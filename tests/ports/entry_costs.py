"""What an entry of a run of 500 steps costs, early and late: `make bench-entries` prints it as JSON.

An entry is decided, encoded and committed to a SQLite store, with a loaded run's state at hand as in a turn. Bytes are
those handed to the database for one step (its result and the reply to it), CPU is of the whole process.
"""

import asyncio
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from agent_service import journal
from agent_service.core.events import ToolReturned
from agent_service.journal import Commit, Run
from agent_service.store.rows import rows_of
from agent_service.store.sqlite import SqliteStore
from tests.core.model_cues import a_run_of
from tests.core.script import Script
from tests.kit.runs import wake_of

STEPS, LENGTH = 500, 2000
"""Steps of the run, and characters of each result."""
WINDOW = 40
"""Steps of which a figure is the median, around the step that it is named by."""
AT = (25, 250, 475)


def written(commit: Commit) -> int:
    """The bytes of a commit's rows."""
    rows = rows_of(commit, told=0)
    values = [*rows.run, *rows.entry, *(rows.brief or ()), *(value for row in rows.added for value in row)]
    return sum(len(value) if isinstance(value, str | bytes) else 8 for value in values)


async def measure(script: Script) -> dict[str, Any]:
    steps: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with SqliteStore.open(Path(folder)) as store:
            run: Run | None = None
            for moment in script.story:
                if isinstance(moment.event, ToolReturned):
                    steps.append((0, 0.0))
                began = time.process_time()
                commit = journal.commit_of(run, moment.event, moment.transition)
                await (store.commit(commit) if run else store.accept(wake_of(commit), commit))
                spent = time.process_time() - began
                run = Run(state=commit.state, head=commit.entry.hash)
                if steps:
                    steps[-1] = steps[-1][0] + written(commit), steps[-1][1] + spent
    around = {f"step {step}": steps[step - WINDOW // 2 : step + WINDOW // 2] for step in AT}
    return {
        name: {
            "median_bytes": median(size for size, _ in some),
            "most_bytes": max(size for size, _ in some),
            "median_cpu_us": round(median(cpu for _, cpu in some) * 1e6),
        }
        for name, some in around.items()
    }


if __name__ == "__main__":
    limits = {"max_steps": STEPS + 1, "max_attempts_of_run": STEPS + 1}
    print(json.dumps(asyncio.run(measure(a_run_of(STEPS, length=LENGTH, **limits))), indent=2))  # noqa: T201 # its use
