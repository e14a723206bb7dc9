"""Whose turn it is when a place is free: no run that wants a hundred makes another wait."""

import asyncio
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ductile_gateway.calls.places import NoPlace, Places

GREEDY, SINGLE = "run_greedy", "run_single"


class Crowd:
    """Calls that come, each a run and a lane; `inside` tells in which order they were let in, until they `leave`."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.inside: list[tuple[str, str]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, calls: Iterable[tuple[str, str]]) -> None:
        for run_id, lane in calls:
            self.tasks.append(asyncio.create_task(self._comes(run_id, lane)))
            await settled()

    async def _comes(self, run_id: str, lane: str) -> None:
        await self.places.come(run_id, lane)
        self.inside.append((run_id, lane))

    async def leave(self, run_id: str, lane: str) -> None:
        self.inside.remove((run_id, lane))
        self.places.go(run_id, lane)
        await settled()

    def refused(self) -> int:
        return sum(task.done() and isinstance(task.exception(), NoPlace) for task in self.tasks)


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_single_call_goes_in_as_soon_as_one_of_those_that_run_has_ended() -> None:
    crowd = Crowd(Places(32, {"slow": 4}))
    await crowd.come([(GREEDY, "slow")] * 100)
    await crowd.come([(SINGLE, "slow")])
    assert crowd.inside == [(GREEDY, "slow")] * 4
    await crowd.leave(GREEDY, "slow")
    assert crowd.inside.count((SINGLE, "slow")) == 1


async def test_runs_that_want_the_same_take_turns_and_each_has_its_own_in_order() -> None:
    crowd = Crowd(Places(2))
    await crowd.come([(run, lane) for run in ("a", "b", "c") for lane in ("1", "2", "3")])
    order = list(crowd.inside)
    while crowd.inside:
        await crowd.leave(*crowd.inside[0])
        order += [call for call in crowd.inside if call not in order]
    assert order[:2] == [("a", "1"), ("a", "2")]
    assert [run for run, _ in order[2:5]] == ["b", "c", "a"]
    assert [lane for run, lane in order if run == "b"] == ["1", "2", "3"]


async def test_in_a_full_room_whoever_has_most_waiting_makes_place_for_who_has_fewer() -> None:
    crowd = Crowd(Places(1, room=3))
    await crowd.come([(GREEDY, "x")] * 4)
    await crowd.come([(SINGLE, "x")])
    assert [task.done() for task in crowd.tasks] == [True, False, False, True, False], "its latest is given back"
    await crowd.come([(GREEDY, "x"), ("run_of_another", "x"), ("run_of_a_fourth", "x")])
    assert crowd.refused() == 4, "the greedy one's next two, and at last one whom nobody has more waiting than"
    await crowd.leave(GREEDY, "x")
    assert crowd.inside == [(SINGLE, "x")]


async def test_who_gives_up_waiting_or_is_let_in_while_it_does_leaves_no_place_taken() -> None:
    places = Places(1)
    await places.come("a")
    waiting = [asyncio.create_task(places.come("b")) for _ in range(2)]
    await settled()
    waiting[1].cancel()
    await settled()
    places.go("a")
    waiting[0].cancel()
    await asyncio.wait(waiting)
    async with asyncio.timeout(1):
        await places.come("c")


async def test_once_closed_nobody_waits_and_nobody_comes_in_whoever_leaves() -> None:
    crowd = Crowd(Places(1))
    await crowd.come([("a", "x"), ("b", "x")])
    crowd.places.close()
    await crowd.leave("a", "x")
    await crowd.come([("c", "x")])
    assert (crowd.inside, crowd.refused()) == ([], 2)


CALLS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=30)


@given(calls=CALLS, leaving=st.randoms(use_true_random=False))
def test_every_call_gets_in_whatever_comes_and_ends_and_never_more_than_may(calls: Any, leaving: Any) -> None:
    widths = {"x": 1, "y": 2}

    async def all_get_in() -> int:
        crowd = Crowd(Places(3, widths))
        await crowd.come(calls)
        while crowd.inside:
            assert len(crowd.inside) <= 3
            assert all(sum(lane == each for _, lane in crowd.inside) <= most for each, most in widths.items())
            await crowd.leave(*leaving.choice(crowd.inside))
        return sum(task.done() for task in crowd.tasks)

    assert asyncio.run(all_get_in()) == len(calls)
