"""`ductile-gateway migrate`: the ledger of one gateway becomes that of several, and the other way round."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ductile_gateway.calls.call import Intent, Receipt
from ductile_gateway.cli.migrating import migrate
from ductile_gateway.ductile.watch import Job
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import open_store
from ductile_gateway.store.shared import marks
from ductile_gateway.store.shared.opening import log_of_gateways
from ductile_gateway.store.shared.rows import Rows
from ductile_gateway.store.stores import Stores
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured, causes
from groundwork.service.store_folder import store_id
from tests.gateway.parts import NOON, RUN
from tests.ledger.openers import joined, ledger_stream
from tests.ledger.test_beside_the_ledger import FIRST
from tests.ledger.test_ledger import SECOND, an_answer, an_intent, named
from tests.ledger.test_outbox import a_delivery

IN_DUCTILE, BY_A_PLUGIN, READS = an_intent(1), an_intent(2), an_intent(3, may_repeat=True)


class House:
    """The settings of a gateway, and where it has its database."""

    def __init__(self, folder: Path, server: EmbeddedNats, link: NatsLink) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.store.mkdir()
        self.link = link
        nats: dict[str, Any] = {"urls": [server.url]}
        self.settings = GatewaySettings.model_validate({"nats": nats, "store": str(self.store)})

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Stores]:
        async with open_store(self.store) as file:
            yield Stores.embedded(file, folder=self.store, run_bytes=1000)

    @asynccontextmanager
    async def one_of_several(self) -> AsyncIterator[Stores]:
        async with joined(self.folder, self.link, "a") as stores:
            yield stores

    async def moved(self, to: str) -> None:
        await migrate(self.settings, to=to, sqlite=None)


Some = TypeVar("Some", bound=House)


@pytest.fixture
async def house(tmp_path: Path, some_server: EmbeddedNats, link: NatsLink) -> House:
    return await filled(House(tmp_path, some_server, link))


async def filled(house: Some) -> Some:
    """With something of each kind in its database."""
    await ledger_stream(house.link)
    async with house.alone() as stores:
        await stores.ledger.intend(IN_DUCTILE, Receipt(NOON))
        await stores.receipts.accepted(IN_DUCTILE.key, "j-1")
        await stores.overdue.add(IN_DUCTILE.key, Job("j-1", pipeline=False), NOON)
        await stores.ledger.intend(READS)
        await stores.ledger.answer(an_answer(4))
        stores.ledger.published(an_answer(4).key)
        await stores.ledger.answer(an_answer(5))
        await named(stores.ledger, RUN, an_answer(4).key, ("a.md",))
        await stores.deliveries.record("peer", "delivery-1", event_key="key", at=NOON)
        await stores.outbox.add([a_delivery("waiting"), a_delivery("completed"), a_delivery(target="relay")])
        await stores.outbox.settle(a_delivery(target="relay"), "arrived", at=NOON)
        await stores.pins.trust([FIRST])
    return house


async def test_everything_is_there_as_it_was_and_what_is_open_is_that_of_a_gateway_that_is_gone(house: House) -> None:
    async with house.alone() as stores:
        await stores.ledger.intend(BY_A_PLUGIN)
    await house.moved("jetstream")
    async with house.one_of_several() as stores:
        await holds_all(stores)
        for intent in (IN_DUCTILE, BY_A_PLUGIN, READS):
            found = await stores.ledger.find(intent.key)
            assert isinstance(found, Intent)
            assert (found, found.by) == (intent, store_id(house.store))


async def test_and_back_again_with_what_was_done_meanwhile(house: House) -> None:
    await house.moved("jetstream")
    async with house.one_of_several() as stores:
        found = await stores.ledger.find(READS.key)
        assert isinstance(found, Intent)
        await stores.ledger.adopt(found)
        await stores.ledger.answer(an_answer(3))
    await house.moved("sqlite")
    async with house.alone() as stores:
        await holds_all(stores)
        assert await stores.ledger.find(READS.key) == an_answer(3)
        assert await stores.ledger.open_intents() == [IN_DUCTILE]
        assert await stores.outbox.claim(a_delivery("waiting"))


async def holds_all(stores: Stores) -> None:
    assert await stores.receipts.find(IN_DUCTILE.key) == Receipt(NOON, "j-1")
    assert [late.job for late in stores.overdue.all()] == [Job("j-1", pipeline=False)]
    assert await stores.ledger.find(an_answer(4).key) == an_answer(4)
    later = await stores.ledger.answers_to_publish(NOON + 60 * SECOND)
    assert [one for one in later if one.key != READS.key] == [an_answer(5)]
    assert await stores.ledger.digest_of(RUN, "a.md") == f"of {an_answer(4).key}"
    assert await stores.deliveries.find("peer", "delivery-1") == "key"
    assert await stores.outbox.due("subscription:a", NOON, 10) == [a_delivery("waiting")]
    await stores.outbox.add([a_delivery(target="relay")])
    assert await stores.outbox.lanes_due(NOON) == ["subscription:a"], "what has arrived is remembered"
    assert stores.pins.all() == {FIRST.id: FIRST.public}


async def test_a_move_that_was_interrupted_is_finished_by_the_same_command_and_nobody_begins_before(
    house: House,
) -> None:
    rows = Rows(log_of_gateways(house.link), nothing)
    store = store_id(house.store)
    await marks.put(rows, marks.Mark("coming", store), before=marks.Mark())
    with pytest.raises(ExceptionGroup) as failure:
        async with house.one_of_several():
            pass
    assert "migrate --to jetstream` again" in str(next(causes(failure.value)))
    for _ in range(2):
        await house.moved("jetstream")
    async with house.one_of_several() as stores:
        await holds_all(stores)


async def nothing(_: int) -> None:
    """There is no copy."""


async def test_what_a_plugin_was_begun_with_keeps_the_ledger_where_it_can_be_found(house: House) -> None:
    await house.moved("jetstream")
    async with house.one_of_several() as stores:
        await stores.ledger.intend(BY_A_PLUGIN)
    with pytest.raises(Misconfigured, match=BY_A_PLUGIN.key):
        await house.moved("sqlite")
    async with house.one_of_several() as stores:
        await stores.ledger.answer(an_answer(2))
    await house.moved("sqlite")
