"""Several gateways over one ledger: errors that a single gateway cannot have."""

import sqlite3
from pathlib import Path

import pytest

from ductile_gateway.calls.call import Call, Receipt
from ductile_gateway.calls.ledger import ArtifactNames, CallVersion
from ductile_gateway.store.opening import COPY
from ductile_gateway.store.rows import subject_of
from groundwork.service.errors import TryAgain
from groundwork.sqlite.errors import storage_error
from tests.gateway.parts import NOON, RUN
from tests.kit.waiting import until
from tests.ledger import kit

KEY = kit.an_open_call().key


@pytest.fixture
def crowd(tmp_path: Path) -> kit.Crowd:
    return kit.Crowd(tmp_path)


async def test_of_two_that_adopt_a_call_one_does_and_its_first_gateway_has_it_no_more(crowd: kit.Crowd) -> None:
    async with crowd.gateway("a") as a, crowd.gateway("b") as b, crowd.gateway("c") as c:
        await a.ledger.intend(kit.an_open_call(), Receipt(NOON))
        found = await kit.row_of(b.ledger, KEY)
        await b.ledger.adopt(found)
        with pytest.raises(TryAgain, match="another gateway sees to"):
            await c.ledger.adopt(found)
        await a.ledger.accepted(KEY, "j-of-another-life")
        await a.ledger.never_sent(KEY)
        with pytest.raises(TryAgain):
            await a.ledger.intend(kit.an_open_call())
        assert await kit.receipt_of(b.ledger, KEY) == Receipt(NOON)


async def test_what_is_asked_by_key_is_known_though_the_own_copy_is_behind(crowd: kit.Crowd) -> None:
    async with crowd.gateway("a") as a, crowd.gateway("b") as b:
        crowd.wires["b"].open.clear()
        await a.ledger.intend(kit.an_open_call(), Receipt(NOON))
        assert await kit.named(a.ledger, RUN, "call-1", kit.NAMES) == ("a.md",)
        assert await kit.begun(b.ledger, KEY) == kit.an_open_call()
        assert await kit.receipt_of(b.ledger, KEY) == Receipt(NOON)
        assert await b.ledger.digest_of(RUN, "A.md") == kit.an_artifact(b"1").sha256
        assert await kit.named(b.ledger, RUN, "call-2", kit.NAMES) == ("a-02.md",)
        assert b.ledger.number_open() == 0


async def test_a_row_that_was_changed_is_not_forgotten_by_a_gateway_whose_copy_is_behind(crowd: kit.Crowd) -> None:
    async with crowd.gateway("a") as a, crowd.gateway("b") as b:
        await kit.named(a.ledger, RUN, "call-1", kit.NAMES)
        await until(lambda: b.rows.look_up("SELECT 1 FROM rows"))
        crowd.wires["b"].open.clear()
        later = [(kit.an_artifact(b"2"), ["b.md"])]
        await a.ledger.name_artifacts(RUN, "call-2", later, at=NOON + 2 * kit.SECOND)
        await b.rows.carrier.forget(ArtifactNames, NOON + kit.SECOND)
        assert await b.ledger.digest_of(RUN, "a.md") == kit.an_artifact(b"1").sha256


async def test_a_copy_that_a_power_loss_has_damaged_is_made_anew(crowd: kit.Crowd, tmp_path: Path) -> None:
    async with crowd.gateway("a") as a:
        await a.ledger.intend(kit.an_open_call(), Receipt(NOON))
    copy = tmp_path / "a" / COPY
    whole = copy.read_bytes()
    for damaged in (b"no database" * 1000, whole[:4096] + b"\xff" * 4096 + whole[8192:]):
        copy.write_bytes(damaged)
        async with crowd.gateway("a") as a:
            assert a.ledger.number_open() == 1
    damage = sqlite3.DatabaseError("malformed")
    damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    with pytest.raises(TryAgain, match="made anew"):  # so the process joins again
        async with crowd.gateway("a"):
            raise storage_error(damage, copy)
    assert not list(copy.parent.glob(f"{COPY}*"))


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        (b"no fact", "written by no gateway"),
        (b'{"version": 1, "key": 7}\n', "written by no gateway"),
        (b'{"version": 2, "key": "another form"}\n', "left to that one"),
    ],
)
async def test_a_fact_that_nobody_can_read_or_a_newer_gateway_wrote_stays_and_holds_up_its_own_call_alone(
    crowd: kit.Crowd, fact: bytes, why: str
) -> None:
    async with crowd.gateway("a") as a, crowd.gateway("b") as b:
        call, answer, seen = kit.an_open_call(), kit.an_answer(), CallVersion()
        assert await a.ledger.find(KEY, seen) is None
        await crowd.log.append(subject_of(Call, KEY), fact, after=None)
        changes = a.ledger.intend(call, None, seen), a.ledger.answer(answer, seen), a.ledger.answer(answer)
        for refused in (a.ledger.find(KEY), *changes):
            with pytest.raises(TryAgain, match=why):
                await refused
        assert [kept.body for kept in crowd.log.facts] == [fact]
        await b.ledger.intend(kit.an_open_call(2))
        assert await kit.begun(a.ledger, kit.an_open_call(2).key) == kit.an_open_call(2)
        await until(lambda: a.ledger.number_open() == 1)


async def test_what_a_gateway_sends_late_from_its_backlog_no_other_sends_beside_it(crowd: kit.Crowd) -> None:
    async with crowd.gateway("a") as a, crowd.gateway("b") as b:
        later = NOON + 2 * a.outbox.overdue
        await b.outbox.add([kit.a_delivery()])
        assert [await each.outbox.claim(kit.a_delivery(), later) for each in (b, a)] == [True, False]


async def test_what_a_gateway_owes_and_does_not_send_another_sends_and_then_it_is_no_longer_its_own(
    crowd: kit.Crowd,
) -> None:
    async with crowd.gateway("a") as a, crowd.gateway("b") as b:
        later = NOON + a.outbox.overdue
        await b.outbox.add([kit.a_delivery(), kit.a_delivery(run_id="run_another")])
        await until(lambda: a.outbox.due("subscription:a", later, 10), lambda due: len(due) == 2)
        assert await a.outbox.lanes_due(later - kit.SECOND) == []
        assert not await a.outbox.claim(kit.a_delivery(), later - kit.SECOND)
        assert await a.outbox.lanes_due(later) == ["subscription:a"]
        due = await a.outbox.due("subscription:a", later, 10)
        assert [await a.outbox.claim(one, later) for one in due] == [True, True]
        assert not await b.outbox.claim(kit.a_delivery(), later)
        await b.outbox.postpone(kit.a_delivery(), later + 60 * kit.SECOND, why="it had been stopped")
        assert await kit.owed(a, "subscription:a", later, 1) == [kit.a_delivery()]
        await a.outbox.settle(kit.a_delivery(), "arrived", at=later)
        assert not await a.outbox.claim(kit.a_delivery(), later)
