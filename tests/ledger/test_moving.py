"""`ductile-gateway backup` and `restore` between the ledger of one gateway and that of several. No gateway starts on a
ledger that is incomplete or was left."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import pytest

from agent_service.workbench.embedded_nats import EmbeddedNats
from ductile_gateway.calls.call import Call, Job, Receipt
from ductile_gateway.cli.archive import backup, restore
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE
from ductile_gateway.store.opening import BACKUP, log_of_gateways, mark_of, put_mark
from ductile_gateway.store.rows import Rows, StreamCarrier, subject_of
from groundwork.archive.series import Series
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured
from schemas import subjects
from tests.cli.stores import changed
from tests.gateway.parts import NOON, RUN
from tests.ledger import kit

Kind = Literal["jetstream", "sqlite"]
KINDS: tuple[Kind, ...] = ("jetstream", "sqlite")
IN_DUCTILE, BY_A_PLUGIN, READS = kit.an_open_call(1), kit.an_open_call(2), kit.an_open_call(3, may_repeat=True)


class Kept:
    def __init__(self, folder: Path, server: EmbeddedNats, link: NatsLink) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.store.mkdir()
        self.link = link
        nats: dict[str, Any] = {"urls": [server.url]}
        self.settings = GatewaySettings.model_validate({"nats": nats, "store": str(self.store)})

    @asynccontextmanager
    async def opened(self, kind: Kind = "jetstream") -> AsyncIterator[kit.Stores]:
        if kind == "jetstream":
            async with kit.joined(self.folder, self.link, "a") as stores:
                yield stores
        else:
            async with kit.embedded(self.store)() as stores:
                yield stores

    def of(self, kind: Kind) -> GatewaySettings:
        shared = {"store": Path(kind), "cache": self.folder / "cache", "keys_file": self.settings.keys_path()}
        return self.settings.model_copy(update=shared) if kind == "jetstream" else self.settings

    async def backed_up(self, kind: Kind, *, leave: bool = False) -> str:
        (self.folder / "it.zip").unlink(missing_ok=True)
        place = str(self.folder / "it.zip")
        await backup(self.of(kind), place, with_keys=False, leave=leave, as_json=True)
        with Series(place, "gateway").open(None) as (name, _):
            return name

    async def moved(self, to: Kind) -> str:
        name = await self.backed_up("sqlite" if to == "jetstream" else "jetstream", leave=True)
        await self.restored(to)
        return name

    async def restored(self, kind: Kind) -> None:
        await restore(self.of(kind), str(self.folder / "it.zip"))

    async def lost(self) -> None:
        """The stream and the database, and not the keys."""
        await self.link.client.jetstream().delete_stream(subjects.STREAM_LEDGER)
        await kit.ledger_stream(self.link)
        for file in self.store.iterdir():
            file.unlink()

    async def why_no_gateway_begins(self, kind: Kind = "jetstream") -> str:
        with pytest.raises(Misconfigured) as failure:
            async with self.opened(kind):
                pass
        return str(failure.value)


@pytest.fixture
async def kept(tmp_path: Path, some_server: EmbeddedNats, link: NatsLink) -> Kept:
    await kit.ledger_stream(link)
    kept = Kept(tmp_path, some_server, link)
    async with kept.opened("sqlite") as stores:
        await stores.ledger.intend(IN_DUCTILE, Receipt(NOON))
        await stores.ledger.accepted(IN_DUCTILE.key, "j-1")
        await stores.ledger.outlived(IN_DUCTILE.key, Job("j-1", pipeline=False), NOON)
        await stores.ledger.intend(READS)
        for step in (4, 5):
            await stores.ledger.answer(kit.an_answer(step))
        await kit.named(stores.ledger, RUN, kit.an_answer(4).key, ("a.md",))
        await stores.outbox.add(
            [kit.a_delivery("waiting"), kit.a_delivery("completed"), kit.a_delivery(target="relay")]
        )
        await stores.outbox.settle(kit.a_delivery(target="relay"), "arrived", at=NOON)
        await stores.pins.trust([kit.FIRST])
    return kept


async def holds_all(stores: kit.Stores) -> None:
    assert await kit.receipt_of(stores.ledger, IN_DUCTILE.key) == Receipt(NOON, "j-1")
    assert stores.ledger.late() == [(IN_DUCTILE.key, Job("j-1", pipeline=False, late_since=NOON))]
    assert await kit.told(stores.ledger, kit.an_answer(4).key) == kit.an_answer(4).body
    later = sorted(await stores.ledger.answers_to_publish(NOON), key=attrgetter("step"))  # all are of one instant
    later_ones = [one.body for one in later if one.key not in (READS.key, BY_A_PLUGIN.key)]
    assert later_ones == [kit.an_answer(4).body, kit.an_answer(5).body]
    assert await stores.ledger.digest_of(RUN, "a.md") == kit.an_artifact(kit.an_answer(4).key[-1:].encode()).sha256
    assert await kit.owed(stores, "subscription:a", NOON + stores.outbox.overdue) == [kit.a_delivery("waiting")]
    await stores.outbox.add([kit.a_delivery(target="relay")])
    assert await stores.outbox.lanes_due(NOON + stores.outbox.overdue) == [
        "subscription:a"
    ]  # what has arrived is remembered
    assert stores.pins.all() == {kit.FIRST.id: kit.FIRST.public}


async def test_all_is_there_after_a_move_as_that_of_a_gateway_that_is_gone_and_goes_back_with_what_was_done_meanwhile(
    kept: Kept,
) -> None:
    name = await kept.moved("jetstream")
    assert "backed up to be moved" in await kept.why_no_gateway_begins("sqlite")
    nowhere = str(kept.folder / "nowhere" / "it.zip")
    with pytest.raises(Misconfigured, match="no folder"):  # and the ledger is not left
        await backup(kept.of("jetstream"), nowhere, with_keys=False, leave=True, as_json=True)
    async with kept.opened() as stores:
        await holds_all(stores)
        for intent in (IN_DUCTILE, READS):
            past = await kit.row_of(stores.ledger, intent.key)
            assert (past.begun_call(), past.by) == (intent, f"{BACKUP}{name}")
        await stores.ledger.adopt(await kit.row_of(stores.ledger, READS.key))
        await stores.ledger.answer(kit.an_answer(3))
        await stores.ledger.intend(BY_A_PLUGIN)
    await kept.moved("sqlite")
    assert "backed up to be moved" in await kept.why_no_gateway_begins()
    async with kept.opened("sqlite") as stores:
        await holds_all(stores)
        assert await kit.told(stores.ledger, READS.key) == kit.an_answer(3).body
        assert [await kit.begun(stores.ledger, one.key) for one in (IN_DUCTILE, BY_A_PLUGIN)] == [
            IN_DUCTILE,
            BY_A_PLUGIN,
        ]
        assert await stores.outbox.claim(kit.a_delivery("waiting"), NOON + stores.outbox.overdue)


@pytest.mark.parametrize("into", KINDS)
@pytest.mark.parametrize("out_of", KINDS)
async def test_a_ledger_comes_back_from_its_backup_into_a_stream_or_a_database_whichever_it_was(
    kept: Kept, out_of: Kind, into: Kind
) -> None:
    async with kept.opened("sqlite") as stores:
        await stores.ledger.intend(BY_A_PLUGIN)
    if out_of == "jetstream":
        await kept.moved("jetstream")
    name = await kept.backed_up(out_of)
    await kept.lost()
    await kept.restored(into)
    with pytest.raises(Misconfigured, match=f"was restored from {name} before"):
        await kept.restored(into)
    async with kept.opened(into) as stores:
        await holds_all(stores)
        for intent in (IN_DUCTILE, BY_A_PLUGIN, READS):
            past = await kit.row_of(stores.ledger, intent.key)
            assert (past.begun_call(), past.by) == (intent, f"{BACKUP}{name}" if into == "jetstream" else "")


async def test_a_damaged_backup_is_refused_before_anything_is_stored(kept: Kept) -> None:
    await kept.backed_up("sqlite")
    await kept.lost()
    file = kept.folder / "it.zip"
    changed(file, lambda members: members.update({"mark.json": b"{}"})).rename(file)
    with pytest.raises(Misconfigured, match="Nothing was restored"):
        await kept.restored("sqlite")
    assert not (kept.store / FILE).exists()


async def test_that_it_was_restored_is_known_to_all_gateways_and_stays_in_doubt_when_it_moves(kept: Kept) -> None:
    name = await kept.backed_up("sqlite")
    await kept.lost()
    await kept.restored("jetstream")
    noted = await mark_of(Rows(StreamCarrier(log_of_gateways(kept.link))))
    assert (noted.backup, noted.moved, noted.taken < noted.at) == (name, False, True)
    moved_as = await kept.moved("sqlite")
    async with kept.opened("sqlite") as stores:
        known = await mark_of(stores.rows)
    assert (known.backup, known.moved, known.at > noted.at) == (moved_as, False, True)


@pytest.mark.parametrize("out_of", KINDS)
async def test_a_ledger_that_a_killed_backup_has_left_is_left_again_and_comes_back(kept: Kept, out_of: Kind) -> None:
    if out_of == "jetstream":
        await kept.moved("jetstream")
    async with kept.opened(out_of) as stores:
        noted = await mark_of(stores.rows)
        await put_mark(stores.rows, replace(noted, state="left"), before=noted)
    assert "`ductile-gateway backup --leave FILE` again" in await kept.why_no_gateway_begins(out_of)
    await kept.moved("sqlite" if out_of == "jetstream" else "jetstream")
    async with kept.opened("sqlite" if out_of == "jetstream" else "jetstream") as stores:
        await holds_all(stores)


@pytest.mark.parametrize("into", KINDS)
async def test_a_restore_that_was_interrupted_is_finished_by_the_same_command_and_no_gateway_begins_before(
    kept: Kept, into: Kind
) -> None:
    name = await kept.backed_up("sqlite")
    await kept.lost()
    await kept.restored(into)
    subject = subject_of(Call, IN_DUCTILE.key)
    async with kept.opened(into) as stores:
        noted = await mark_of(stores.rows)
        await put_mark(stores.rows, replace(noted, state="coming"), before=noted)
        if into == "jetstream":
            await log_of_gateways(kept.link).purge(subject)
        else:
            delete = "DELETE FROM rows WHERE subject = ?"
            await stores.rows.carrier.file.write(lambda file: file.execute(delete, (subject,)).rowcount)
    assert f"`ductile-gateway restore FILE --backup {name}` again" in await kept.why_no_gateway_begins(into)
    with pytest.raises(Misconfigured, match="was not finished"):
        await backup(kept.of(into), f"{kept.folder}/half.zip", with_keys=False, leave=False, as_json=True)
    await kept.restored(into)
    async with kept.opened(into) as stores:
        await holds_all(stores)
        assert await mark_of(stores.rows) == noted
