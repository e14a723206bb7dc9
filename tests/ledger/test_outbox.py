"""The port Outbox, whatever fills it: what is due, in which order, and for how long it is remembered."""

from dataclasses import replace
from datetime import timedelta

from ductile_gateway.outbound.notifications import Notification
from ductile_gateway.store.stores import Stores
from tests.gateway.parts import NOON, RUN
from tests.ledger.openers import Opener

MINUTE = timedelta(minutes=1)


def a_delivery(key: str = "completed", *, target: str = "subscription:a", run_id: str = RUN) -> Notification:
    return Notification(
        target=target,
        lane=target,
        key=f"{run_id}:{key}",
        run_id=run_id,
        type="agent.completed",
        url="https://a.example/secret",
        body=b'{"type": "agent.completed"}',
        accepted_at=NOON,
    )


async def test_what_was_added_is_due_at_once_each_once_and_after_a_restart(opener: Opener) -> None:
    one, other = a_delivery(), a_delivery(target="relay")
    async with opener() as stores:
        await stores.outbox.add([one, other])
        await stores.outbox.add([replace(one, body=b"made again")])
    async with opener() as stores:
        assert sorted(await stores.outbox.lanes_due(NOON)) == ["relay", "subscription:a"]
        assert await stores.outbox.due("subscription:a", NOON, 10) == [one]
        assert await stores.outbox.claim(one)


async def test_of_a_run_a_receiver_is_due_the_oldest_and_the_next_once_that_is_settled(stores: Stores) -> None:
    first, second, third = (a_delivery(key) for key in ("waiting", "reopened", "completed"))
    another = a_delivery(run_id="run_another")
    for one in (first, second, another, third):
        await stores.outbox.add([one])
    assert await stores.outbox.due(first.lane, NOON, 10) == [first, another]
    assert await stores.outbox.due(first.lane, NOON, 1) == [first]
    await stores.outbox.postpone(replace(first, tries=1), NOON + MINUTE, why="ConnectError")
    assert await stores.outbox.due(first.lane, NOON, 10) == [another]
    await stores.outbox.settle(replace(first, tries=2), "arrived", at=NOON)
    assert await stores.outbox.due(first.lane, NOON, 10) == [second, another]


async def test_who_wants_nothing_more_of_a_run_is_told_nothing_more_of_it(stores: Stores) -> None:
    for key in ("waiting", "reopened"):
        await stores.outbox.add([a_delivery(key), a_delivery(key, target="relay")])
    await stores.outbox.settle(a_delivery("waiting"), "gone", at=NOON)
    await stores.outbox.add([a_delivery("completed"), a_delivery(run_id="run_another")])
    assert [one.run_id for one in await stores.outbox.due("subscription:a", NOON, 10)] == ["run_another"]
    assert [one.key for one in await stores.outbox.due("relay", NOON, 10)] == [f"{RUN}:waiting"]
