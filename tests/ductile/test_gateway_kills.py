"""kill -9 of the real gateway between intent, receipt and result: no write is started twice, no doubt hidden.

Four calls stand at the point together: a write whose plugin does not show its call id, one whose plugin does, a read,
and a write that is declared idempotent. A wire on either side of the gateway stops them there; then it is killed, and
another goes on over the same store.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import CALL_ID
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from tests.ductile.serving import BRISK, Served, kill, served
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.on_nats import send
from tests.gateway.parts import a_request
from tests.gateway.served import ending, fleet
from tests.kit.cut_wire import Knife
from tests.kit.waiting import until

QUIET: dict[str, Any] = {"do": "emit", "emitted": {}}
ASKED = {"silent": ("handle", QUIET), "shown": ("handle", {}), "read": ("look", QUIET), "idempotent": ("note", QUIET)}
ALL = len(ASKED)


@dataclass(slots=True)
class Scene:
    """A gateway between two wires, and the calls that it is asked for."""

    home: Served
    to_bus: Knife
    to_ductile: Knife
    calls: dict[str, str] = field(default_factory=dict)

    async def ask(self, **more: Any) -> None:
        for step, (kind, (command, payload)) in enumerate(ASKED.items(), start=1):
            self.calls[kind] = await self.home.ask(command, payload | more, step=step)

    def away(self) -> None:
        """Nothing stands in the way of the next gateway."""
        self.to_bus.away()
        self.to_ductile.away()


async def _the_start_is_on_its_way(scene: Scene) -> None:
    start = scene.to_ductile.stop_before(rb"POST /plugin/probe/", "there")
    await scene.ask()
    await until(lambda: start.seen == len(scene.home.known()) == ALL)


async def _the_job_is_made_and_its_id_not_told(scene: Scene) -> None:
    accepted = scene.to_ductile.stop_before(rb"HTTP/1\.1 202", "back")
    await scene.ask()
    await until(lambda: accepted.seen == len(scene.home.known()) == ALL)


async def _the_id_is_written(scene: Scene) -> None:
    scene.to_ductile.stop_before(rb"GET /job/", "there")
    await scene.ask()
    await until(lambda: len(scene.home.known("job_id IS NOT NULL")) == ALL)


async def _the_result_is_written_and_not_published(scene: Scene) -> None:
    scene.to_bus.stop_before(rb"PUB agentic\.tool_result ", "there")
    await scene.ask()
    await until(lambda: len(scene.home.known("answer IS NOT NULL")) == ALL)
    assert not await scene.home.results()


async def _the_result_is_published_and_the_gateway_does_not_know(scene: Scene) -> None:
    scene.to_bus.stop_before(rb'\{"stream": ?"AGENTIC"', "back")
    await scene.ask()
    await until(lambda: scene.home.has_results(ALL))


OK_ONCE = dict.fromkeys(ASKED, ("ok", 1))
NEVER_CAME = {"silent": ("in_doubt", 0), "shown": ("in_doubt", 0), "read": ("ok", 1), "idempotent": ("ok", 1)}
NOBODY_WAS_TOLD = {"silent": ("in_doubt", 1), "shown": ("ok", 1), "read": ("ok", 2), "idempotent": ("ok", 2)}
"""How each of the calls ends, and how many jobs it has had. The gateway itself cannot tell the last two apart."""
POINTS: dict[Callable[[Scene], Awaitable[None]], dict[str, tuple[str, int]]] = {
    _the_start_is_on_its_way: NEVER_CAME,
    _the_job_is_made_and_its_id_not_told: NOBODY_WAS_TOLD,
    _the_id_is_written: OK_ONCE,
    _the_result_is_written_and_not_published: OK_ONCE,
    _the_result_is_published_and_the_gateway_does_not_know: OK_ONCE,
}


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__.strip("_"))
async def test_no_write_starts_twice_and_each_doubt_is_told_after_a_kill_when(
    tmp_path: Path, ductile: DuctileUnderTest, point: Callable[[Scene], Awaitable[None]]
) -> None:
    to_bus, to_ductile = Knife(), Knife()
    async with served(
        tmp_path,
        ductile,
        to_the_bus=to_bus.rule,
        to_ductile=to_ductile.rule,
        idempotent=["probe/note"],
        events=False,
    ) as home:
        scene = Scene(home, to_bus, to_ductile)
        async with home.living() as process:
            await point(scene)
            kill(process)
            scene.away()
        async with home.living():
            endings = await home.endings()
    assert {kind: endings[key] for kind, key in scene.calls.items()} == POINTS[point]


async def test_gateway_and_ductile_killed_in_mid_job_end_each_call_once_with_the_job_that_was_made_for_it(
    tmp_path: Path, ductile: DuctileUnderTest
) -> None:
    """After a kill Ductile runs a job anew that it had begun (measured of Ductile): the same, for the second time."""

    def attempts() -> set[tuple[int, ...]]:
        ran = [one for one in ductile.executions if CALL_ID in one.payload]
        return {tuple(one.attempt for one in ran if one.payload[CALL_ID] == key) for key in home.asked}

    async with served(tmp_path, ductile) as home:
        for step in range(1, 4):
            await home.ask("note", {"do": "hold", "until": str(tmp_path / "go")}, step=step)
        async with home.living() as process:
            await until(lambda: attempts() == {(1,)} and len(home.known("job_id IS NOT NULL")) == 3)
            kill(process)
            ductile.kill()
        ductile.start()
        async with home.living():
            await until(lambda: attempts() == {(1, 2)}, within_s=30)
            (tmp_path / "go").touch()
            assert set((await home.endings()).values()) == {("ok", 1)}
    assert attempts() == {(1, 2)}


async def test_the_jobs_of_a_gateway_that_was_killed_are_followed_by_another_and_no_other_is_made(
    tmp_path: Path, link: NatsLink, nats_server: EmbeddedNats, ductile: DuctileUnderTest
) -> None:
    def executed() -> list[str]:
        return [one.payload[CALL_ID] for one in ductile.executions if CALL_ID in one.payload]

    talk = {"url": ductile.url, "token": ductile.token, **BRISK}
    async with fleet(tmp_path, link, nats_server.url, runner="ductile", ductile=talk, tools={"probe": {}}) as ships:
        with ships.serving("one") as first:
            await ships.ready("one")
            for step in range(1, 4):
                held = {"do": "hold", "until": str(ships.marks / "go")}
                await send(ships.link, a_request("note", held, tool="probe", step=step), "probe")
            await until(lambda: len(executed()) == 3, within_s=30)
            with ships.serving("two"):
                await ships.ready("two")
                kill(first)
                ships.go()
                told = await ships.results(3)
    assert [ending(result) for result in told] == ["ok"] * 3
    assert len(executed()) == len(set(executed())) == 3
