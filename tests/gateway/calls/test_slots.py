"""Slots of calls: limits, fairness between runs, and fairness between several gateways."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js.api import PubAck

from ductile_gateway.bus.ownership import ROLE, BusOwnership, has_left
from ductile_gateway.bus.permits import open_permits
from ductile_gateway.calls.admission import CallSlots
from ductile_gateway.calls.call import ToolCall
from groundwork.nats.buckets import replace_value
from groundwork.nats.lease import Lease, LeaseLost, Owner
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import key_value_bucket, set_up
from groundwork.service.errors import TryAgain
from schemas import subjects
from tests.gateway.parts import NOON, a_request, asked_for, memory_rows
from tests.kit.waiting import until

TOOL = "fetch"
GREEDY, SINGLE = "run_greedy", "run_single"


class Crowd:
    """Calls, each of a run and a lane; `inside`: those with a slot, in order, until they `leave`."""

    def __init__(self, places: CallSlots) -> None:
        self.places = places
        self.inside: list[tuple[str, str]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, calls: Iterable[tuple[str, str]]) -> None:
        for run_id, lane in calls:
            self.tasks.append(asyncio.create_task(self._comes(run_id, lane)))
            await settled()

    async def _comes(self, run_id: str, lane: str) -> None:
        await self.places.acquire(run_id, lane)
        self.inside.append((run_id, lane))

    async def leave(self, run_id: str, lane: str) -> None:
        self.inside.remove((run_id, lane))
        self.places.release(run_id, lane)
        await settled()

    def refused(self) -> int:
        return sum(task.done() and isinstance(task.exception(), TryAgain) for task in self.tasks)


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_runs_that_want_the_same_take_turns_and_each_has_its_own_in_order() -> None:
    crowd = Crowd(CallSlots({}, most=2))
    await crowd.come([(run, lane) for run in ("a", "b", "c") for lane in ("1", "2", "3")])
    order = list(crowd.inside)
    while crowd.inside:
        await crowd.leave(*crowd.inside[0])
        order += [call for call in crowd.inside if call not in order]
    assert order[:2] == [("a", "1"), ("a", "2")]
    assert [run for run, _ in order[2:5]] == ["b", "c", "a"]
    assert [lane for run, lane in order if run == "b"] == ["1", "2", "3"]


async def test_in_a_full_room_whoever_has_most_waiting_makes_place_for_who_has_fewer() -> None:
    crowd = Crowd(CallSlots({}, most=1, room=3))
    await crowd.come([(GREEDY, "x")] * 4)
    await crowd.come([(SINGLE, "x")])
    assert [task.done() for task in crowd.tasks] == [True, False, False, True, False], "its latest is given back"
    await crowd.come([(GREEDY, "x"), ("run_of_another", "x"), ("run_of_a_fourth", "x")])
    assert crowd.refused() == 4, "the greedy one's next two, and at last one whom nobody has more waiting than"
    await crowd.leave(GREEDY, "x")
    assert crowd.inside == [(SINGLE, "x")]


async def test_once_closed_nobody_waits_and_nobody_comes_in_whoever_leaves() -> None:
    crowd = Crowd(CallSlots({}, most=1))
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
        crowd = Crowd(CallSlots(widths, most=3))
        await crowd.come(calls)
        while crowd.inside:
            assert len(crowd.inside) <= 3
            assert all(sum(lane == each for _, lane in crowd.inside) <= most for each, most in widths.items())
            await crowd.leave(*leaving.choice(crowd.inside))
        return sum(task.done() for task in crowd.tasks)

    assert asyncio.run(all_get_in()) == len(calls)


@pytest.mark.parametrize("refused", [False, True])
async def test_a_call_that_is_cancelled_as_its_turn_comes_takes_no_place_along(refused: bool) -> None:
    places = CallSlots({}, most=1)
    await places.acquire("a", "x")
    first, second = (asyncio.create_task(places.acquire(run, "x")) for run in ("b", "c"))
    await settled()
    first.cancel()  # it hears of that only when the loop comes round
    places.close() if refused else places.release("a", "x")
    ended = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(one) for one in ended] == [asyncio.CancelledError, TryAgain if refused else type(None)]
    assert places.in_use("x") == 1


class Gateways:
    """Each with lanes of its own for one tool, over the permits that all see. `most`: of the calls at a time."""

    def __init__(self, link: NatsLink, width: int, open_: contextlib.AsyncExitStack) -> None:
        self._link = link
        self._width = width
        self.open = open_
        self.lanes: dict[str, CallSlots] = {}
        self.inside = self.most = self.done = 0

    async def comes(self, name: str, lease: Lease) -> None:
        permits = await self.open.enter_async_context(open_permits(self._link, name, lease))
        self.lanes[name] = CallSlots({TOOL: self._width}, most=32, room=64, permits=permits)

    async def call(self, name: str, ended: Callable[[], bool] = lambda: True, *, lasts_s: float = 0.0) -> None:
        slots, call = self.lanes[name], (f"run_{name}", TOOL)
        await slots.acquire(*call)
        try:
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(lasts_s)
            await until(ended)
            self.inside -= 1
            self.done += 1
        finally:
            slots.release(*call)


async def lives(link: NatsLink, folder: Path, name: str) -> Lease:
    owner = Owner.here(folder, ttl_s=60).model_copy(update={"holder": name})
    lease = Lease(link, ROLE.member(name), owner)
    await lease.acquire()
    return lease


@contextlib.asynccontextmanager
async def several(
    link: NatsLink, folder: Path, width: int, names: str
) -> AsyncIterator[tuple[Gateways, dict[str, Lease]]]:
    await set_up(link, (key_value_bucket(subjects.LEASE_BUCKET, {}),))
    async with contextlib.AsyncExitStack() as stack:
        gateways = Gateways(link, width, stack)
        leases = {name: await lives(link, folder, name) for name in names}
        for name, lease in leases.items():
            await gateways.comes(name, lease)
        yield gateways, leases


@pytest.mark.parametrize("width", [1, 3])
async def test_gateways_together_never_run_more_than_may_and_take_the_places_of_one_that_has_left(
    tmp_path: Path, link: NatsLink, width: int
) -> None:
    over = asyncio.Event()
    async with several(link, tmp_path, width, "abc") as (gateways, leases), asyncio.TaskGroup() as calls:
        held = [calls.create_task(gateways.call("a", over.is_set)) for _ in range(width)]
        await until(lambda: gateways.inside == width)
        for number in range(12):
            calls.create_task(gateways.call("bc"[number % 2]))
        await asyncio.sleep(0.3)
        assert gateways.done == 0
        for task in held:  # it dies: nothing more is heard of it
            gateways.inside -= 1
            task.cancel()
        gateways.lanes["a"] = gateways.lanes["b"]
        await leases["a"].release()
        await until(lambda: gateways.done == 12, within_s=20)
    assert gateways.most == width


@pytest.mark.parametrize("width", [1, 3])
async def test_a_gateway_with_calls_without_end_does_not_keep_another_from_its_own(
    tmp_path: Path, link: NatsLink, width: int
) -> None:
    over = asyncio.Event()

    async def busy(gateways: Gateways) -> None:
        while not over.is_set():
            await gateways.call("a", lasts_s=0.02)

    async with several(link, tmp_path, width, "ab") as (gateways, _), asyncio.TaskGroup() as calls:
        for _ in range(4 * width):
            calls.create_task(busy(gateways))
        await until(lambda: gateways.done > 20)
        async with asyncio.timeout(30):
            for _ in range(10):
                await gateways.call("b")
        over.set()
    assert gateways.most == width


async def test_a_permit_that_could_not_be_given_back_at_once_is_given_back_later(
    tmp_path: Path, link: NatsLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, store = asyncio.Event(), link.store

    async def cut_off_once(subject: str, body: bytes, *headers: Any, **how: Any) -> PubAck:
        if b'"a"' not in body and not failed.is_set():
            failed.set()
            raise TryAgain("NATS does not answer", 0.05)
        return await store(subject, body, *headers, **how)

    async with several(link, tmp_path, 1, "ab") as (gateways, _):
        await gateways.call("a")
        monkeypatch.setattr(link, "store", cut_off_once)
        async with asyncio.timeout(20):
            await gateways.call("b")
    assert failed.is_set()


async def test_a_gateway_that_died_while_it_waited_holds_up_no_other(tmp_path: Path, link: NatsLink) -> None:
    async with several(link, tmp_path, 1, "a") as (gateways, _):
        waits = json.dumps({"b": [0, 1]}).encode()
        await replace_value(link, subjects.LEASE_BUCKET, f"{subjects.IN_FLIGHT}.{TOOL}", waits, after=0)
        async with asyncio.timeout(20):
            await gateways.call("a")


async def test_a_gateway_whose_lease_lapsed_is_made_to_do_nothing_more_and_one_that_lives_is_left_alone(
    tmp_path: Path, link: NatsLink
) -> None:
    await set_up(link, (key_value_bucket(subjects.LEASE_BUCKET, {}),))
    lease = await lives(link, tmp_path, "a")
    ownership = BusOwnership(lease, memory_rows(), link=link)
    intent = ToolCall(asked=asked_for(a_request("save")), deadline_at=NOON, payload={})
    with pytest.raises(TryAgain, match="another gateway carries it out"):
        await ownership.lost(intent, "a", anywhere=True)
    silent = Owner.here(tmp_path, ttl_s=0.2).model_copy(update={"holder": "c"})
    stopped = Lease(link, ROLE.member("c"), silent)
    await stopped.acquire()
    await until(lambda: bool(stopped.trouble))

    async def is_lost() -> bool:
        with contextlib.suppress(TryAgain):
            return bool(await ownership.lost(intent, "c", anywhere=True))
        return False

    await until(is_lost)
    with pytest.raises(LeaseLost):
        await stopped.ensure_held()
    with pytest.raises(TryAgain, match="may be back soon"):
        await ownership.lost(intent, "c", anywhere=False)


async def test_a_gateway_takes_no_other_for_dead_while_no_lease_could_be_renewed(
    tmp_path: Path, link: NatsLink
) -> None:
    await set_up(link, (key_value_bucket(subjects.LEASE_BUCKET, {}),))
    other = Lease(link, ROLE.member("c"), Owner.here(tmp_path, ttl_s=1.0).model_copy(update={"holder": "c"}))
    await other.acquire()
    await until(lambda: bool(other.trouble))
    ours = await lives(link, tmp_path, "a")  # the first renewal that succeeds
    assert not await has_left(link, "c", ours)
    await until(lambda: ours.kept_s > 1.0)
    assert await has_left(link, "c", ours)
