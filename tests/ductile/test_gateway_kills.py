"""kill -9 of the real gateway at each point of intent, receipt and result: no write is started twice, no doubt hidden.

Four calls stand at the point together: a write whose plugin does not show its call id, one whose plugin does, a read,
and a write that is declared idempotent. A wire on either side of the gateway stops them there, or a lock on its
file; then it is killed, and another goes on over the same store.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.ductile.gateway_house import House, ending, house, kill
from tests.ductile.under_test import DuctileUnderTest
from tests.kit.cut_wire import Knife
from tests.kit.waiting import until

ALL = 4
START = rb"POST /plugin/probe/"
ACCEPTED = rb"HTTP/1\.1 202"
ENDED = rb'"status": ?"succeeded"'
LOGGED = rb'"status": ?"succeeded", ?"attempt"'
"""The last that is asked of a job: what the log has of it."""
REQUEST = rb"MSG agentic\.tool_request\."
RESULT = rb"PUB agentic\.tool_result "
STORED = rb'\{"stream": ?"AGENTIC"'
ACKNOWLEDGED = rb"PUB \$JS\.ACK\.\S+ +4\r\n\+ACK\r\n"


@dataclass(slots=True)
class Scene:
    """A gateway between two wires, and the calls that it is asked for. `locks` end with the gateway that is killed."""

    house: House
    folder: Path
    to_bus: Knife = field(default_factory=Knife)
    to_ductile: Knife = field(default_factory=Knife)
    locks: ExitStack = field(default_factory=ExitStack)
    calls: dict[str, str] = field(default_factory=dict)

    async def ask(self, *, held: bool = False) -> None:
        """For all four calls. What is held ends once `release` is called."""
        quiet: dict[str, Any] = {"do": "emit", "emitted": {}}
        wait = {"do": "hold", "until": str(self.folder / "go")}
        asked = {
            "silent": ("handle", wait if held else quiet),
            "shown": ("handle", wait if held else {}),
            "read": ("look", wait if held else quiet),
            "idempotent": ("note", wait if held else quiet),
        }
        for step, (kind, (command, payload)) in enumerate(asked.items(), start=1):
            self.calls[kind] = await self.house.ask(command, payload, step=step)

    async def all_intended(self) -> None:
        """Whatever is sent has an intent, also what may be repeated."""
        await until(lambda: len(self.house.disk.intended()) == ALL)

    def release(self) -> None:
        (self.folder / "go").touch()

    def lock(self) -> None:
        """The gateway waits before it writes."""
        self.locks.enter_context(self.house.disk.locked())

    def away(self) -> None:
        """Nothing stands in the way of the next gateway."""
        self.locks.close()
        self.to_bus.away()
        self.to_ductile.away()

    def counted(self) -> dict[str, int]:
        """How many jobs each call has had."""
        jobs = self.house.jobs()
        return {kind: len(jobs[key]) for kind, key in self.calls.items()}


Point = Callable[[Scene], Awaitable[None]]


async def _nothing_is_written(scene: Scene) -> None:
    scene.lock()
    delivered = scene.to_bus.watch(REQUEST, "back")
    await scene.ask()
    await until(lambda: delivered.seen == ALL)


async def _the_start_is_on_its_way(scene: Scene) -> None:
    start = scene.to_ductile.stop_before(START, "there")
    await scene.ask()
    await until(lambda: start.seen == ALL)
    await scene.all_intended()


async def _the_job_is_made_and_its_id_not_told(scene: Scene) -> None:
    accepted = scene.to_ductile.stop_before(ACCEPTED, "back")
    await scene.ask()
    await until(lambda: accepted.seen == ALL)
    await scene.all_intended()


async def _the_id_is_told_and_not_written(scene: Scene) -> None:
    start = scene.to_ductile.stop_before(START, "there")
    accepted = scene.to_ductile.watch(ACCEPTED, "back")
    await scene.ask()
    await until(lambda: start.seen == ALL)
    await scene.all_intended()
    scene.lock()
    start.go_on.set()
    await until(lambda: accepted.seen == ALL)


async def _the_id_is_written(scene: Scene) -> None:
    scene.to_ductile.stop_before(rb"GET /job/", "there")
    await scene.ask()
    await until(lambda: len(scene.house.disk.accepted()) == ALL)


async def _the_job_runs(scene: Scene) -> None:
    looks = scene.to_ductile.watch(rb"GET /job/", "there")
    await scene.ask(held=True)
    await until(lambda: len(scene.house.disk.accepted()) == ALL and sum(scene.counted().values()) == ALL)
    await until(lambda: looks.seen >= ALL)


async def _the_end_is_told_and_not_heard(scene: Scene) -> None:
    ended = scene.to_ductile.stop_before(ENDED, "back")
    await scene.ask()
    await until(lambda: ended.seen == ALL)


async def _the_end_is_heard_and_no_result_written(scene: Scene) -> None:
    ended = scene.to_ductile.stop_before(ENDED, "back")
    passed = scene.to_ductile.watch(LOGGED, "back")
    await scene.ask()
    await until(lambda: ended.seen == ALL)
    scene.lock()
    ended.go_on.set()
    await until(lambda: passed.seen == ALL)


async def _the_result_is_written_and_not_published(scene: Scene) -> None:
    scene.to_bus.stop_before(RESULT, "there")
    await scene.ask()
    await until(lambda: len(scene.house.disk.answered()) == ALL)
    assert not await scene.house.results()


async def _the_result_is_published_and_the_gateway_does_not_know(scene: Scene) -> None:
    scene.to_bus.stop_before(STORED, "back")
    await scene.ask()
    await until(lambda: scene.house.has_results(ALL))


async def _the_result_is_published_and_the_request_not_acknowledged(scene: Scene) -> None:
    acknowledged = scene.to_bus.swallow(ACKNOWLEDGED, "there")
    await scene.ask()
    await until(lambda: acknowledged.seen >= ALL)


OK_ONCE = dict.fromkeys(("silent", "shown", "read", "idempotent"), ("ok", 1))
NEVER_CAME = {"silent": ("in_doubt", 0), "shown": ("in_doubt", 0), "read": ("ok", 1), "idempotent": ("ok", 1)}
NOBODY_WAS_TOLD = {"silent": ("in_doubt", 1), "shown": ("ok", 1), "read": ("ok", 2), "idempotent": ("ok", 2)}
"""How each of the calls ends, and how many jobs it has had. The gateway itself cannot tell the last two apart."""

POINTS: dict[Point, dict[str, tuple[str, int]]] = {
    _nothing_is_written: OK_ONCE,
    _the_start_is_on_its_way: NEVER_CAME,
    _the_job_is_made_and_its_id_not_told: NOBODY_WAS_TOLD,
    _the_id_is_told_and_not_written: NOBODY_WAS_TOLD,
    _the_id_is_written: OK_ONCE,
    _the_job_runs: OK_ONCE,
    _the_end_is_told_and_not_heard: OK_ONCE,
    _the_end_is_heard_and_no_result_written: OK_ONCE,
    _the_result_is_written_and_not_published: OK_ONCE,
    _the_result_is_published_and_the_gateway_does_not_know: OK_ONCE,
    _the_result_is_published_and_the_request_not_acknowledged: OK_ONCE,
}


@asynccontextmanager
async def a_scene(folder: Path, ductile: DuctileUnderTest) -> AsyncIterator[Scene]:
    to_bus, to_ductile = Knife(), Knife()
    async with house(
        folder,
        ductile,
        on_the_way_to_the_bus=to_bus.rule,
        on_the_way_to_ductile=to_ductile.rule,
        idempotent=["probe/note"],
        events=False,
    ) as made:
        scene = Scene(made, folder, to_bus, to_ductile)
        yield scene
        scene.away()


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__.strip("_"))
async def test_no_write_starts_twice_and_each_doubt_is_told_after_a_kill_when(
    tmp_path: Path, measured: DuctileUnderTest, point: Point
) -> None:
    async with a_scene(tmp_path, measured) as scene:
        async with scene.house.living() as process:
            await point(scene)
            kill(process)
            scene.away()
        scene.release()
        async with scene.house.living():
            told = await scene.house.answers()
    ended = {kind: (ending(told[key]), scene.counted()[kind]) for kind, key in scene.calls.items()}
    assert ended == POINTS[point]
