"""kill -9 of the real gateway between intent, receipt and result: no write is started twice, no doubt hidden.

Four calls stand at the point together: a write whose plugin does not show its call id, one whose plugin does, a read,
and a write that is declared idempotent. A wire on either side of the gateway stops them there; then it is killed, and
another goes on over the same store.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
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
RESULT = rb"PUB agentic\.tool_result "
STORED = rb'\{"stream": ?"AGENTIC"'


@dataclass(slots=True)
class Scene:
    """A gateway between two wires, and the calls that it is asked for."""

    house: House
    to_bus: Knife = field(default_factory=Knife)
    to_ductile: Knife = field(default_factory=Knife)
    calls: dict[str, str] = field(default_factory=dict)

    async def ask(self) -> None:
        """For all four calls."""
        quiet: dict[str, Any] = {"do": "emit", "emitted": {}}
        asked = {
            "silent": ("handle", quiet),
            "shown": ("handle", {}),
            "read": ("look", quiet),
            "idempotent": ("note", quiet),
        }
        for step, (kind, (command, payload)) in enumerate(asked.items(), start=1):
            self.calls[kind] = await self.house.ask(command, payload, step=step)

    async def all_intended(self) -> None:
        """Whatever is sent has an intent, also what may be repeated."""
        await until(lambda: len(self.house.disk.intended()) == ALL)

    def away(self) -> None:
        """Nothing stands in the way of the next gateway."""
        self.to_bus.away()
        self.to_ductile.away()

    def counted(self) -> dict[str, int]:
        """How many jobs each call has had."""
        jobs = self.house.jobs()
        return {kind: len(jobs[key]) for kind, key in self.calls.items()}


Point = Callable[[Scene], Awaitable[None]]


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


async def _the_id_is_written(scene: Scene) -> None:
    scene.to_ductile.stop_before(rb"GET /job/", "there")
    await scene.ask()
    await until(lambda: len(scene.house.disk.accepted()) == ALL)


async def _the_result_is_written_and_not_published(scene: Scene) -> None:
    scene.to_bus.stop_before(RESULT, "there")
    await scene.ask()
    await until(lambda: len(scene.house.disk.answered()) == ALL)
    assert not await scene.house.results()


async def _the_result_is_published_and_the_gateway_does_not_know(scene: Scene) -> None:
    scene.to_bus.stop_before(STORED, "back")
    await scene.ask()
    await until(lambda: scene.house.has_results(ALL))


OK_ONCE = dict.fromkeys(("silent", "shown", "read", "idempotent"), ("ok", 1))
NEVER_CAME = {"silent": ("in_doubt", 0), "shown": ("in_doubt", 0), "read": ("ok", 1), "idempotent": ("ok", 1)}
NOBODY_WAS_TOLD = {"silent": ("in_doubt", 1), "shown": ("ok", 1), "read": ("ok", 2), "idempotent": ("ok", 2)}
"""How each of the calls ends, and how many jobs it has had. The gateway itself cannot tell the last two apart."""

POINTS: dict[Point, dict[str, tuple[str, int]]] = {
    _the_start_is_on_its_way: NEVER_CAME,
    _the_job_is_made_and_its_id_not_told: NOBODY_WAS_TOLD,
    _the_id_is_written: OK_ONCE,
    _the_result_is_written_and_not_published: OK_ONCE,
    _the_result_is_published_and_the_gateway_does_not_know: OK_ONCE,
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
        scene = Scene(made, to_bus, to_ductile)
        yield scene
        scene.away()


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__.strip("_"))
async def test_no_write_starts_twice_and_each_doubt_is_told_after_a_kill_when(
    tmp_path: Path, ductile: DuctileUnderTest, point: Point
) -> None:
    async with a_scene(tmp_path, ductile) as scene:
        async with scene.house.living() as process:
            await point(scene)
            kill(process)
            scene.away()
        async with scene.house.living():
            told = await scene.house.answers()
    ended = {kind: (ending(told[key]), scene.counted()[kind]) for kind, key in scene.calls.items()}
    assert ended == POINTS[point]
