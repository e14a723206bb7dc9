"""Several gateways over one ledger: what only then can go wrong."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from ductile_gateway.calls.call import Intent, Receipt
from ductile_gateway.ductile.watch import Job
from ductile_gateway.store import FILE
from ductile_gateway.store.shared.copy import TABLES
from ductile_gateway.store.shared.rows import CALL, subject_of
from ductile_gateway.store.stores import Stores
from groundwork.service.errors import TryAgain
from tests.gateway.parts import NOON, RUN
from tests.kit.waiting import until
from tests.ledger.crowd import Crowd
from tests.ledger.test_ledger import NAMES, SECOND, an_answer, an_intent, named
from tests.ledger.test_outbox import a_delivery

KEY = an_intent().key


@pytest.fixture
def crowd(tmp_path: Path) -> Crowd:
    return Crowd(tmp_path)


@pytest.fixture
async def a(crowd: Crowd) -> AsyncIterator[Stores]:
    async with crowd.gateway("a") as stores:
        yield stores


@pytest.fixture
async def b(crowd: Crowd) -> AsyncIterator[Stores]:
    async with crowd.gateway("b") as stores:
        yield stores


async def test_of_two_that_begin_a_call_at_the_same_moment_one_does(crowd: Crowd, a: Stores, b: Stores) -> None:
    crowd.log.overtaken_by = lambda: b.ledger.intend(an_intent())
    with pytest.raises(TryAgain, match="another gateway has begun"):
        await a.ledger.intend(an_intent())
    found = await a.ledger.find(KEY)
    assert isinstance(found, Intent)
    assert found.by == "b"


async def test_of_two_that_adopt_a_call_one_does_and_its_first_gateway_has_it_no_more(crowd: Crowd) -> None:
    async with crowd.gateway("a") as a, crowd.gateway("b") as b, crowd.gateway("c") as c:
        await a.ledger.intend(an_intent(), Receipt(NOON))
        found = await b.ledger.find(KEY)
        assert isinstance(found, Intent)
        await b.ledger.adopt(found)
        with pytest.raises(TryAgain, match="another gateway sees to"):
            await c.ledger.adopt(found)
        await a.receipts.accepted(KEY, "j-of-another-life")
        await a.receipts.drop(KEY)
        with pytest.raises(TryAgain):
            await a.ledger.intend(an_intent())
        assert await b.receipts.find(KEY) == Receipt(NOON)


async def test_what_is_asked_by_key_is_known_though_the_own_copy_is_behind(crowd: Crowd, a: Stores, b: Stores) -> None:
    crowd.copies["b"].behind = True
    await a.ledger.intend(an_intent(), Receipt(NOON))
    await a.deliveries.record("peer", "delivery-1", event_key="key", at=NOON)
    assert await named(a.ledger, RUN, "call-1", NAMES) == ("a.md",)
    assert await b.ledger.find(KEY) == an_intent()
    assert await b.receipts.find(KEY) == Receipt(NOON)
    assert await b.deliveries.find("peer", "delivery-1") == "key"
    assert await b.ledger.digest_of(RUN, "A.md") == "of call-1"
    assert await named(b.ledger, RUN, "call-2", NAMES) == ("a-02.md",)
    assert await b.ledger.open_intents() == []


async def test_a_fact_that_nobody_can_read_holds_up_its_own_call_alone(crowd: Crowd, a: Stores, b: Stores) -> None:
    for forged in (b"no fact", b"{}\n", b'{"version": 1, "key": 7}\n'):
        await crowd.log.append(subject_of(CALL, KEY), forged, after=None)
        for refused in (a.ledger.find(KEY), a.ledger.intend(an_intent()), a.ledger.answer(an_answer())):
            with pytest.raises(TryAgain, match="written by no gateway"):
                await refused
    await b.ledger.intend(an_intent(2))
    assert await a.ledger.open_intents() == [an_intent(2)]


async def test_a_call_that_a_newer_gateway_wrote_is_left_to_that_one(crowd: Crowd, a: Stores, b: Stores) -> None:
    newer = b'{"version": 2, "key": "another form"}\n'
    await crowd.log.append(subject_of(CALL, KEY), newer, after=None)
    for refused in (a.ledger.find(KEY), a.ledger.intend(an_intent()), a.ledger.answer(an_answer())):
        with pytest.raises(TryAgain, match="newer gateway"):
            await refused
    assert crowd.log.facts[subject_of(CALL, KEY)].body == newer
    await b.ledger.intend(an_intent(2))
    assert await a.ledger.open_intents() == [an_intent(2)]


async def test_a_gateway_that_joins_late_has_the_same_copy(crowd: Crowd, a: Stores, b: Stores, tmp_path: Path) -> None:
    for step in (1, 2, 3):
        await a.ledger.intend(an_intent(step), Receipt(NOON))
    await b.ledger.answer(an_answer(2))
    await b.ledger.answer(an_answer(3, seconds=60))
    await a.overdue.add(an_intent(1).key, Job("j-1", pipeline=False), NOON)
    await named(a.ledger, RUN, an_answer(2).key, NAMES)
    await named(b.ledger, RUN, an_answer(3).key, NAMES)
    await a.deliveries.record("peer", "delivery-1", event_key="key", at=NOON)
    await b.deliveries.record("peer", "delivery-2", event_key="key", at=NOON + SECOND)
    b.ledger.published(an_answer(2).key)
    await until(lambda: '"published":1' in crowd.log.facts[subject_of(CALL, an_answer(2).key)].body.decode())
    await a.ledger.forget_before(NOON + SECOND)
    await b.deliveries.forget_before(NOON + SECOND)
    async with crowd.gateway("c"):
        assert copied(tmp_path / "a") == copied(tmp_path / "b") == copied(tmp_path / "c")
    assert await b.ledger.find(an_answer(2).key) is None
    assert await a.deliveries.find("peer", "delivery-1") is None


async def test_what_a_dead_gateway_owed_is_its_heirs_and_no_longer_its_own(crowd: Crowd, a: Stores, b: Stores) -> None:
    await b.outbox.add([a_delivery(), a_delivery(run_id="run_another")])
    crowd.live.discard("b")
    assert await a.outbox.lanes_due(NOON) == ["subscription:a"]
    due = await a.outbox.due("subscription:a", NOON, 10)
    assert [await a.outbox.claim(one) for one in due] == [True, True]
    assert not await b.outbox.claim(a_delivery())
    await b.outbox.postpone(a_delivery(), NOON + 60 * SECOND, why="it had been stopped")
    assert await a.outbox.due("subscription:a", NOON, 1) == [a_delivery()]
    await a.outbox.settle(a_delivery(), "arrived", at=NOON)
    assert not await a.outbox.claim(a_delivery())


def copied(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """All that a gateway's copy has; the order of writing, without the numbers that say it."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.row_factory = sqlite3.Row
        found = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}  # noqa: S608
    return {table: [tuple(row) for row in rows] for table, rows in found.items()}
