"""kill -9 of each process at every point of a step that continues: each call is made once, and the result is the same.

The step's tool asks for something three times, or for six tasks of which one writes. At every call the test waits until
its process has begun, kills, and lets the call go on.
"""

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_service.workbench.dev import DevOptions, DevStack, Service, stack
from schemas import subjects
from tests.e2e.bodies import FRAME, on_the_bus, to_the_end, wake, written
from tests.kit.waiting import until

PLUGINS = Path(__file__).parent / "seeking"
COURSES = {
    "rounds": (("seek0",), ("first",), ("seek1",), ("second",), ("seek2",), ("third",), ("seek3",)),
    "graph": (("seek0",), ("a", "b"), ("c", "d", "e"), ("f",), ("seek1",)),
}
"""The calls of each course, those that run side by side together."""
WRITES = {"c"}
RESULTS = {
    "rounds": "task-1 ok seen: first; task-1 ok seen: second; task-1 ok seen: third",
    "graph": "a ok seen: a; b ok seen: b; c ok seen: c; d ok seen: d; e ok seen: e; f ok seen: f",
}


def script(course: str) -> dict[str, Any]:
    """One step, and the end when it is there."""
    plan = {"action": {"tool": "seeker", "command": "seek", "arguments": {"course": course}}}
    met = [{"item": f"d{n}", "evidence": "step:1"} for n in (1, 2, 3)]
    end = {"verdict": "done", "summary": "found", "met": met}
    failed = {"verdict": "escalate", "summary": "it did not answer"}
    rules = [
        FRAME,
        {"phase": "plan", "plan": plan},
        {"phase": "reflect", "when": {"status": "ok"}, "reflect": end},
        {"phase": "reflect", "reflect": failed},
    ]
    return {"name": "seeking", "rules": rules}


@dataclass(frozen=True, slots=True)
class Scene:
    """A stack, one run of it, and what the processes of its tool note."""

    made: DevStack
    notes: Path
    run_id: str

    async def begun(self, names: Collection[str]) -> None:
        """All of these calls run."""
        files = [self.notes / f"{name}.begun" for name in names]
        await until(lambda: all(file.exists() for file in files), within_s=30)

    async def over(self, names: Collection[str]) -> None:
        """None of these calls runs any more."""
        pids = [self.pid(name) for name in names]
        await until(lambda: not any(map(is_running, pids)), within_s=20)

    def let_go(self, names: Collection[str]) -> None:
        for name in names:
            (self.notes / f"{name}.go").touch()

    def pid(self, name: str) -> int:
        return int((self.notes / f"{name}.pid").read_text())

    def calls(self) -> Counter[str]:
        return Counter((self.notes / "calls").read_text().split())

    async def result(self) -> str:
        """What the step came to, once the run is done."""
        ended = await to_the_end(self.made, self.run_id)
        assert ended["state"] == "done", ended
        (step,) = ended["steps"]
        summary: str = step["summary"]
        return summary


@asynccontextmanager
async def scene(folder: Path, course: str) -> AsyncIterator[Scene]:
    notes = folder / "notes"
    notes.mkdir(parents=True)
    options = DevOptions(
        folder=folder / "stack",
        script=written(script(course), folder),
        plugins=(PLUGINS,),
        plugin_config={"seeker": {"notes": str(notes)}},
        agent={"continuations": {"retrieval_tool": "seeker.look"}},
        sync_interval="1s",
    )
    async with stack(options) as made:
        yield Scene(made, notes, await wake(made))


Kill = Callable[[Scene], Awaitable[None]]


async def _agent(scene: Scene) -> None:
    scene.made.agent.kill()


async def _gateway(scene: Scene) -> None:
    scene.made.gateway.kill()


async def _bus(scene: Scene) -> None:
    scene.made.nats.kill()
    await scene.made.nats.start()


@pytest.mark.parametrize("kill", [_agent, _gateway, _bus], ids=lambda kill: kill.__name__.strip("_"))
@pytest.mark.parametrize("course", COURSES)
async def test_a_kill_while_each_call_runs_repeats_none_and_changes_no_result(
    tmp_path: Path, course: str, kill: Kill
) -> None:
    async with scene(tmp_path, course) as it:
        for names in COURSES[course]:
            await it.begun(names)
            await kill(it)
            it.let_go(names)
        await check(it, course)


@pytest.mark.parametrize("victim", ["agent", "gateway"])
@pytest.mark.parametrize("course", COURSES)
async def test_a_kill_between_the_end_of_each_call_and_the_word_of_it_repeats_none(
    tmp_path: Path, course: str, victim: str
) -> None:
    async with scene(tmp_path, course) as it:
        for names in COURSES[course]:
            await it.begun(names)
            service = getattr(it.made, victim)
            freeze(service)
            it.let_go(names)
            await it.over(names)
            service.kill()
        await check(it, course)


@pytest.mark.parametrize("course", COURSES)
async def test_a_read_that_is_killed_is_made_again_and_the_result_is_the_same(tmp_path: Path, course: str) -> None:
    async with scene(tmp_path, course) as it:
        for names in COURSES[course]:
            await it.begun(names)
            for name in set(names) - WRITES:
                os.kill(it.pid(name), signal.SIGKILL)
            it.let_go(names)
        assert await it.result() == RESULTS[course]
    assert it.calls() == {name: 1 if name in WRITES else 2 for names in COURSES[course] for name in names}


async def check(scene: Scene, course: str) -> None:
    assert await scene.result() == RESULTS[course]
    names = [name for some in COURSES[course] for name in some]
    assert scene.calls() == dict.fromkeys(names, 1)
    requests = await on_the_bus(scene.made, subjects.ALL_TOOL_REQUESTS)
    assert len(requests) == len(names)
    assert [event["run_id"] for event in await on_the_bus(scene.made, subjects.COMPLETED)] == [scene.run_id]


def freeze(service: Service) -> None:
    """It hears nothing any more."""
    assert service.pid is not None
    os.kill(service.pid, signal.SIGSTOP)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
