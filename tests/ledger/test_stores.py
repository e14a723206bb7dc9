"""The gateway's rows in each store: calls with their receipts, deliveries, and the agent's keys."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ductile_gateway.calls.call import AlreadyStarted, Call, Receipt
from ductile_gateway.calls.ledger import ArtifactNames, CallVersion
from groundwork.service.errors import NoRoom, TryAgain
from schemas.signing import AgentKey
from tests.gateway.parts import NOON, RUN
from tests.ledger import kit
from tests.ledger.kit import begun


@pytest.fixture(params=["sqlite", "bus"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> kit.Opener:
    if request.param == "sqlite":
        return kit.embedded(tmp_path)
    link = request.getfixturevalue("link")

    @asynccontextmanager
    async def opened() -> AsyncIterator[kit.Stores]:
        await kit.ledger_stream(link)
        async with kit.joined(tmp_path, link, "a", run_bytes=kit.RUN_BYTES) as stores:
            yield stores

    return opened


@pytest.fixture
async def stores(opener: kit.Opener) -> AsyncIterator[kit.Stores]:
    async with opener() as opened:
        yield opened


@pytest.mark.parametrize("intended", [True, False])
async def test_an_answer_takes_the_place_of_an_intent_and_the_first_is_kept_for_ever(
    stores: kit.Stores, intended: bool
) -> None:
    ledger = stores.ledger
    if intended:
        await ledger.intend(kit.an_open_call())
    assert (await ledger.answer(kit.an_answer(text="first"))).body == kit.an_answer(text="first").body
    assert (await ledger.answer(kit.an_answer(text="second", seconds=5))).body == kit.an_answer(text="first").body
    with contextlib.suppress(TryAgain):
        await ledger.intend(kit.an_open_call())
    assert await kit.told(ledger, kit.an_answer().key) == kit.an_answer(text="first").body
    assert ledger.number_open() == 0


async def test_a_receipt_is_written_with_its_intent_and_never_over_another_one(stores: kit.Stores) -> None:
    ledger, call, seen = stores.ledger, kit.an_open_call(), CallVersion()
    assert await ledger.find(call.key, seen) is None
    await ledger.intend(call, Receipt(NOON))
    for version in (seen, None):
        with pytest.raises(AlreadyStarted):
            await ledger.intend(kit.an_open_call(may_repeat=True), Receipt(NOON + kit.SECOND), version)
    assert await begun(ledger, call.key) == call
    assert await kit.receipt_of(ledger, call.key) == Receipt(NOON)
    first = await ledger.answer(kit.an_answer(text="first"))
    assert await ledger.answer(kit.an_answer(text="second"), seen) == first


async def test_of_two_that_begin_a_call_at_once_one_does_and_its_answers_agree(stores: kit.Stores) -> None:
    begun = [stores.ledger.intend(kit.an_open_call(), Receipt(NOON + at * kit.SECOND)) for at in range(2)]
    found = await asyncio.gather(*begun, return_exceptions=True)
    assert [type(one) for one in found if one] == [AlreadyStarted]
    answers = [stores.ledger.answer(kit.an_answer(text=text)) for text in ("one", "another")]
    one, another = await asyncio.gather(*answers)
    assert one == another == await stores.ledger.find(kit.an_answer().key)


async def test_a_call_begins_anew_once_its_receipt_is_dropped(stores: kit.Stores) -> None:
    await stores.ledger.intend(kit.an_open_call(), Receipt(NOON))
    await stores.ledger.accepted(kit.an_open_call().key, "j-1")
    await stores.ledger.never_sent(kit.an_open_call().key)
    assert await kit.receipt_of(stores.ledger, kit.an_open_call().key) is None
    await stores.ledger.intend(kit.an_open_call(), Receipt(NOON + kit.SECOND))
    assert await kit.receipt_of(stores.ledger, kit.an_open_call().key) == Receipt(NOON + kit.SECOND)


async def test_all_is_there_for_the_next_process(opener: kit.Opener) -> None:
    one, other, second = kit.a_delivery(), kit.a_delivery(target="relay"), AgentKey(id="k2", public="B" * 43)
    async with opener() as stores:
        ledger = stores.ledger
        await ledger.intend(kit.an_open_call(1))
        await ledger.answer(kit.an_answer(2))
        await kit.named(ledger, RUN, "call-1", kit.NAMES)
        await stores.outbox.add([one, other])
        await stores.outbox.add([replace(one, body=b"made again")])
        assert stores.pins.all() == {}
        for keys in ([kit.FIRST], [second, kit.FIRST]):
            await stores.pins.trust(keys)
    async with opener() as stores:
        ledger = stores.ledger
        assert await begun(ledger, kit.an_open_call(1).key) == kit.an_open_call(1)
        assert ledger.number_open() == 1
        assert await kit.told(ledger, kit.an_answer(2).key) == kit.an_answer(2).body
        assert [one.body for one in await ledger.answers_to_publish(NOON)] == [kit.an_answer(2).body]
        assert await ledger.answers_to_publish(NOON + kit.SECOND) == []
        assert await kit.named(ledger, RUN, "call-2", kit.NAMES) == ("a-02.md",)
        assert sorted(await stores.outbox.lanes_due(NOON)) == ["relay", "subscription:a"]
        assert await kit.owed(stores, "subscription:a", NOON) == [one]
        assert await stores.outbox.claim(one, NOON)
        assert list(stores.pins.all().items()) == [("k2", second.public), ("k1", kit.FIRST.public)]
        await stores.pins.trust([second])
        assert stores.pins.all() == {"k2": second.public}


async def test_the_artifacts_of_a_run_take_so_much_together_and_those_of_another_their_own(stores: kit.Stores) -> None:
    async def keep(run_id: str, key: str, size: int) -> None:
        await stores.ledger.name_artifacts(run_id, key, [(kit.an_artifact(b"x" * size), [f"{key}.md"])], at=NOON)

    await keep(RUN, "call-1", kit.RUN_BYTES - 40)
    with pytest.raises(NoRoom, match=f"take {kit.RUN_BYTES - 40} bytes already"):
        await keep(RUN, "call-2", 41)
    await keep(RUN, "call-1", kit.RUN_BYTES - 40)
    await keep(RUN, "call-3", 40)
    await keep("run_another", "call-4", kit.RUN_BYTES)


async def test_old_answers_are_forgotten_and_their_names_are_free_again(
    stores: kit.Stores,
) -> None:
    ledger = stores.ledger
    for step, seconds in ((1, 0), (2, 1), (3, 2)):
        await ledger.answer(kit.an_answer(step, seconds=seconds))
    await kit.named(ledger, RUN, kit.an_answer(1).key, kit.NAMES)
    await ledger.intend(kit.an_open_call(4))
    for kind in (Call, ArtifactNames):
        await stores.rows.carrier.forget(kind, NOON + 2 * kit.SECOND)
    found = [await kit.told(ledger, kit.an_answer(step).key) for step in (1, 2, 3)]
    assert found == [None, None, kit.an_answer(3, seconds=2).body]
    assert await begun(ledger, kit.an_open_call(4).key) == kit.an_open_call(4)
    assert await kit.named(ledger, RUN, "another", kit.NAMES) == ("a.md",)


async def test_of_a_run_a_receiver_is_due_the_oldest_and_the_next_once_that_is_settled(stores: kit.Stores) -> None:
    first, second, third = (kit.a_delivery(key) for key in ("waiting", "reopened", "completed"))
    another = kit.a_delivery(run_id="run_another")
    for one in (first, second, another, third):
        await stores.outbox.add([one])
    assert await kit.owed(stores, first.lane, NOON) == [first, another]
    assert await kit.owed(stores, first.lane, NOON, 1) == [first]
    await stores.outbox.postpone(replace(first, tries=1), NOON + 60 * kit.SECOND, why="ConnectError")
    assert await kit.owed(stores, first.lane, NOON) == [another]
    await stores.outbox.settle(replace(first, tries=2), "arrived", at=NOON)
    assert await kit.owed(stores, first.lane, NOON) == [second, another]
