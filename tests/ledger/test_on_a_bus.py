"""Several gateways over one ledger on real servers: what a log in memory cannot show."""

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest

from ductile_gateway.calls.call import AlreadyStarted, Answer, Intent, Receipt
from ductile_gateway.store.shared.opening import FILE, KEPT_S
from ductile_gateway.store.stores import Stores
from groundwork.nats.link import NatsLink, connect
from groundwork.service.errors import Misconfigured, NoRoom, TryAgain
from schemas import subjects
from tests.gateway.parts import NOON, RUN, a_request, asked_for
from tests.kit.cluster import Cluster
from tests.kit.waiting import until
from tests.ledger.openers import NODES, joined, ledger_stream
from tests.ledger.test_ledger import SECOND, an_answer, an_intent, named, published
from tests.ledger.test_outbox import a_delivery

KEY = an_intent().key
NAMED = ("a", "b", "c")
CALLS = 30


@asynccontextmanager
async def three(cluster: Cluster, folder: Path) -> AsyncIterator[tuple[Stores, ...]]:
    """Gateways, each with a link of its own."""
    async with AsyncExitStack() as stack:
        links = [await connect(cluster.settings) for _ in NAMED]
        for link in links:
            stack.push_async_callback(link.close)
        await ledger_stream(links[0], replicas=NODES)
        opening = [joined(folder, link, name, live=set(NAMED)) for name, link in zip(NAMED, links, strict=True)]
        yield tuple([await stack.enter_async_context(one) for one in opening])


async def succeeds(work: Awaitable[object]) -> bool:
    try:
        await work
    except TryAgain:
        return False
    return True


async def test_of_three_gateways_that_do_the_same_at_once_one_does_it(cluster: Cluster, tmp_path: Path) -> None:
    async with three(cluster, tmp_path) as gateways:
        for step in range(1, CALLS + 1):
            begun = await asyncio.gather(*(succeeds(one.ledger.intend(an_intent(step))) for one in gateways))
            assert sum(begun) == 1
            found = await gateways[step % 3].ledger.find(an_intent(step).key)
            assert isinstance(found, Intent)
            assert found.by == NAMED[begun.index(True)]
        answers = [one.ledger.answer(an_answer(text=name)) for name, one in zip(NAMED, gateways, strict=True)]
        assert len({answer.body for answer in await asyncio.gather(*answers)}) == 1
        names = await asyncio.gather(
            *(named(one.ledger, RUN, name, ("p.md", f"{name}.md")) for name, one in zip(NAMED, gateways, strict=True))
        )
        assert len(set(names)) == 3


async def begins(stores: Stores, step: int, receipt: Receipt) -> bool:
    """As the relay does, which tries again until it is its own or another's."""
    while True:
        try:
            await stores.ledger.intend(an_intent(step), receipt)
        except AlreadyStarted:  # by a try of its own whose acknowledgement was lost
            return True
        except TryAgain as error:
            if "another gateway has begun" in str(error):
                return False
            await asyncio.sleep(0.1)
        else:
            return True


async def test_a_leader_that_is_killed_costs_no_call_and_doubles_none(cluster: Cluster, tmp_path: Path) -> None:
    async with three(cluster, tmp_path) as gateways:
        receipts = [Receipt(NOON + number * SECOND) for number in range(3)]
        work = [
            asyncio.create_task(begins(one, step, receipt))
            for step in range(1, CALLS + 1)
            for one, receipt in zip(gateways, receipts, strict=True)
        ]
        await until(lambda: sum(task.done() for task in work) > CALLS)
        (await cluster.leader(subjects.STREAM_LEDGER)).kill()
        begun = await asyncio.gather(*work)
        await cluster.heal()
        for step in range(1, CALLS + 1):
            mine = begun[3 * (step - 1) : 3 * step]
            assert sum(mine) == 1
            found = await gateways[0].ledger.find(an_intent(step).key)
            assert isinstance(found, Intent)
            assert found.by == NAMED[mine.index(True)]
            assert await gateways[1].receipts.find(found.key) == receipts[mine.index(True)]


async def test_of_each_row_the_stream_keeps_one_message_until_it_is_forgotten(link: NatsLink, tmp_path: Path) -> None:
    await ledger_stream(link, replicas=1)
    async with joined(tmp_path, link, "a") as a:
        await a.ledger.intend(an_intent(), Receipt(NOON))
        await a.receipts.accepted(KEY, "j-1")
        await a.ledger.answer(an_answer())
        await a.outbox.add([a_delivery()])
        await a.outbox.settle(a_delivery(), "arrived", at=NOON)
        await named(a.ledger, RUN, KEY, ("a.md",))
        await published(a.ledger, an_answer())
        assert await stored(link) == 3
        await a.ledger.forget_before(NOON + SECOND)
        await a.outbox.forget_before(NOON + SECOND)
        assert await stored(link) == 2, "until when calls, and until when deliveries were forgotten"
        assert await a.ledger.find(KEY) is None


async def test_a_request_as_large_as_a_message_can_be_is_kept_whole(link: NatsLink, tmp_path: Path) -> None:
    await ledger_stream(link, replicas=1)
    asked = asked_for(a_request("save", {"text": "é" * 520_000}))
    intent = Intent(asked=asked, may_repeat=False, deadline_at=NOON)
    async with joined(tmp_path, link, "a") as a, joined(tmp_path, link, "b") as b:
        await a.ledger.intend(intent)
        assert await b.ledger.find(intent.key) == intent
        await until(lambda: _opened(b, intent))


async def _opened(stores: Stores, intent: Intent) -> bool:
    return await stores.ledger.open_intents() == [intent]


async def test_where_the_stream_is_full_nothing_is_begun_and_what_is_known_is_still_told(
    link: NatsLink, tmp_path: Path
) -> None:
    await ledger_stream(link, replicas=1)
    async with joined(tmp_path, link, "a") as a:
        await a.ledger.answer(an_answer(1))
        await limited(link, 1)
        with pytest.raises(NoRoom):
            await a.ledger.intend(an_intent(2))
        assert await a.ledger.find(an_answer(1).key) == an_answer(1)
        await limited(link, 1 << 20)
        await a.ledger.intend(an_intent(2))


async def test_without_the_stream_a_gateway_says_what_makes_it(link: NatsLink, tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as failure:
        async with joined(tmp_path, link, "a"):
            pytest.fail("it started")
    assert failure.group_contains(Misconfigured, match="agentic setup")


@pytest.mark.parametrize("why", ["nobody has kept it for a day", "it is of another stream"])
async def test_a_copy_that_cannot_be_trusted_is_made_anew(link: NatsLink, tmp_path: Path, why: str) -> None:
    await ledger_stream(link, replicas=1)
    async with joined(tmp_path, link, "a") as a:
        await a.ledger.intend(an_intent(1))
        await a.ledger.intend(an_intent(2))
    copy = tmp_path / "a" / FILE
    if why == "it is of another stream":
        await link.jetstream.delete_stream(subjects.STREAM_LEDGER)
        await ledger_stream(link, replicas=1)
        left = []
    else:
        with closing(sqlite3.connect(copy)) as connection:
            connection.execute("UPDATE calls SET step = 7, position = 100 + position")
            connection.commit()
        os.utime(copy, times=(time.time() - KEPT_S - 1,) * 2)
        left = [an_intent(1), an_intent(2)]
    async with joined(tmp_path, link, "a") as a:
        assert await a.ledger.open_intents() == left
        with closing(sqlite3.connect(copy)) as connection:
            assert (
                connection.execute("SELECT step FROM calls ORDER BY position").fetchall() == [(1,), (2,)][: len(left)]
            )


async def test_a_gateway_that_was_away_has_what_the_others_did_meanwhile(link: NatsLink, tmp_path: Path) -> None:
    await ledger_stream(link, replicas=1)
    async with joined(tmp_path, link, "b") as b:
        async with joined(tmp_path, link, "a") as a:
            await a.ledger.intend(an_intent(1))
        await b.ledger.answer(an_answer(1))
        await b.ledger.intend(an_intent(2))
        async with joined(tmp_path, link, "a") as a:
            assert await a.ledger.open_intents() == [an_intent(2)]
            (answer,) = await a.ledger.answers_to_publish(NOON)
            assert isinstance(answer, Answer)
            assert (answer, answer.by) == (an_answer(1), "b")


async def stored(link: NatsLink) -> int:
    """How many messages the stream of facts holds."""
    return (await link.jetstream.stream_info(subjects.STREAM_LEDGER)).state.messages


async def limited(link: NatsLink, max_bytes: int) -> None:
    config = (await link.jetstream.stream_info(subjects.STREAM_LEDGER)).config
    await link.jetstream.update_stream(config.evolve(max_bytes=max_bytes))
