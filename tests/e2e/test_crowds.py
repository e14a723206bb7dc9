"""A step that asks for a hundred things starves nobody.

Runs of one step are timed one after another, from their start to their end by their own word: first alone, then while
the tool of another run gathers. Both ask the same tool, of which as many calls run side by side as the
gateway and one run are allowed by default.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from agent_service.workbench.dev import DevOptions, DevStack, stack
from tests.e2e.bodies import FRAME, to_the_end, view, wake, written

PLUGINS = Path(__file__).parent / "crowding"
ALONE = 10


def script(tasks: int) -> dict[str, Any]:
    """By the goal: a crowd of lookups, or one."""
    ask = {"tool": "crowd", "command": "ask", "arguments": {"tasks": tasks}}
    look = {"tool": "crowd", "command": "look", "arguments": {"query": "one page"}}
    met = [{"item": f"d{n}", "evidence": "step:1"} for n in (1, 2, 3)]
    rules = [
        FRAME,
        {"phase": "plan", "when": {"goal": "crowd"}, "plan": {"action": ask}},
        {"phase": "plan", "plan": {"action": look}},
        {"phase": "reflect", "when": {"status": "ok"}, "reflect": {"verdict": "done", "summary": "seen", "met": met}},
        {"phase": "reflect", "reflect": {"verdict": "escalate", "summary": "it failed"}},
    ]
    return {"name": "crowd", "rules": rules}


@asynccontextmanager
async def house(folder: Path, tasks: int) -> AsyncIterator[DevStack]:
    options = DevOptions(
        folder=folder / "stack",
        script=written(script(tasks), folder),
        plugins=(PLUGINS,),
        agent={"continuations": {"retrieval_tool": "crowd.look"}},
        sync_interval="1s",
    )
    async with stack(options) as made:
        yield made


async def a_step(made: DevStack) -> float:
    """How long a run of one step took, in seconds."""
    return taken(await to_the_end(made, await wake(made, "look at one page")))


def taken(ended: dict[str, Any]) -> float:
    assert ended["state"] == "done", ended
    begun, over = (datetime.fromisoformat(ended[name]) for name in ("started_at", "updated_at"))
    return (over - begun).total_seconds()


async def beside(made: DevStack) -> tuple[list[float], float]:
    """What single runs take while the crowd is under way, and what the crowd takes."""
    crowd, times = await wake(made, "look at a crowd"), []
    while (await view(made, crowd))["state"] in ("queued", "running"):
        times.append(await a_step(made))
    return times, taken(await to_the_end(made, crowd))


async def test_a_single_step_beside_a_hundred_tasks_waits_for_the_calls_in_flight_and_for_no_more(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, 100) as made:
        alone = [await a_step(made) for _ in range(ALONE)]
        meanwhile, crowd = await beside(made)
    assert len(meanwhile) >= 5
    assert median(meanwhile) < 3 * median(alone)
    assert max(meanwhile) < crowd / 3
