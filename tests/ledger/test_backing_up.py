"""`ductile-gateway backup` and `restore` of the ledger of several gateways, and of one that becomes the other's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from ductile_gateway.calls.call import Intent
from ductile_gateway.cli.backing_up import backup
from ductile_gateway.cli.restoring import Order, restore
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import restored
from ductile_gateway.store.restored import Restored
from ductile_gateway.store.shared import marks, restored_row
from ductile_gateway.store.shared.moving import rows_without_copy
from ductile_gateway.store.shared.opening import log_of_gateways
from ductile_gateway.store.shared.rows import CALL, subject_of
from ductile_gateway.store.stores import Stores
from groundwork.backup.archive import Archive
from groundwork.backup.told import of_backup
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured, causes
from schemas import subjects
from tests.ledger.openers import ledger_stream
from tests.ledger.test_migrating import BY_A_PLUGIN, IN_DUCTILE, READS, House, filled, holds_all

Kind = Literal["jetstream", "sqlite"]
KINDS: tuple[Kind, ...] = ("jetstream", "sqlite")


class Kept(House):
    """One whose ledger is backed up, and lost."""

    @property
    def place(self) -> Path:
        return self.folder / "it.backup"

    def of(self, kind: Kind) -> GatewaySettings:
        """The settings of one gateway, or of several."""
        shared = {"store": Path(kind), "cache": self.folder / "cache", "keys_file": self.settings.keys_path()}
        return self.settings.model_copy(update=shared) if kind == "jetstream" else self.settings

    async def backed_up(self, kind: Kind) -> str:
        """The name of the backup."""
        await asyncio.to_thread(backup, self.of(kind), str(self.place), into=None, with_keys=False, as_json=True)
        with Archive.to_read(self.place) as archive:
            return next(iter(archive.backups()))

    async def restored(self, kind: Kind) -> None:
        await restore(self.of(kind), Order(place=str(self.place)))

    async def lost_stream(self) -> None:
        await self.link.jetstream.delete_stream(subjects.STREAM_LEDGER)
        await ledger_stream(self.link)

    async def lost(self) -> None:
        """The stream and the database, and not the keys."""
        await self.lost_stream()
        for file in self.store.iterdir():
            file.unlink()

    @asynccontextmanager
    async def opened(self, kind: Kind) -> AsyncIterator[Stores]:
        async with self.one_of_several() if kind == "jetstream" else self.alone() as stores:
            yield stores

    async def why_nobody_begins(self) -> str:
        with pytest.raises(ExceptionGroup) as failure:
            async with self.one_of_several():
                pass
        return str(next(causes(failure.value)))

    async def noted(self) -> Restored | None:
        row = await rows_without_copy(log_of_gateways(self.link)).read(restored_row.RESTORED_SUBJECT)
        return restored_row.read_restored(row)


@pytest.fixture
async def house(tmp_path: Path, some_server: EmbeddedNats, link: NatsLink) -> Kept:
    return await filled(Kept(tmp_path, some_server, link))


@pytest.mark.parametrize("into", KINDS)
@pytest.mark.parametrize("out_of", KINDS)
async def test_a_ledger_comes_back_from_its_backup_into_a_stream_or_a_database_whichever_it_was(
    house: Kept, out_of: Kind, into: Kind
) -> None:
    async with house.alone() as stores:
        await stores.ledger.intend(BY_A_PLUGIN)
    if out_of == "jetstream":
        await house.moved("jetstream")
    name = await house.backed_up(out_of)
    await house.lost()
    for _ in range(2):
        await house.restored(into)
    async with house.opened(into) as stores:
        await holds_all(stores)
        for intent in (IN_DUCTILE, BY_A_PLUGIN, READS):
            found = await stores.ledger.find(intent.key)
            assert isinstance(found, Intent)
            assert (found, found.by) == (intent, of_backup(name) if into == "jetstream" else "")


async def test_that_it_was_restored_is_known_to_all_gateways_and_goes_along_when_it_moves(house: Kept) -> None:
    name = await house.backed_up("sqlite")
    await house.lost()
    await house.restored("jetstream")
    noted = await house.noted()
    assert noted is not None
    assert (noted.backup, noted.moved, noted.taken < noted.at) == (name, False, True)
    async with house.one_of_several() as stores:
        for intent in (IN_DUCTILE, READS):
            await stores.ledger.adopt(await found(stores, intent))
    await house.moved("sqlite")
    assert restored.read(house.store) == noted
    await house.lost_stream()
    await house.moved("jetstream")
    assert await house.noted() == noted


async def found(stores: Stores, intent: Intent) -> Intent:
    past = await stores.ledger.find(intent.key)
    assert isinstance(past, Intent)
    return past


async def test_a_restore_that_was_interrupted_is_finished_by_the_same_command_and_nobody_begins_before(
    house: Kept,
) -> None:
    name = await house.backed_up("sqlite")
    await house.lost()
    await house.restored("jetstream")
    noted, log = await house.noted(), log_of_gateways(house.link)
    here, coming = (marks.Mark(state, of_backup(name)) for state in ("here", "coming"))
    await marks.put(rows_without_copy(log), coming, before=here)
    await log.purge(subject_of(CALL, IN_DUCTILE.key))
    assert f"`ductile-gateway restore FILE --backup {name}` again" in await house.why_nobody_begins()
    with pytest.raises(Misconfigured, match=f"restore FILE --backup {name}"):
        await house.moved("jetstream")
    await house.restored("jetstream")
    async with house.one_of_several() as stores:
        await holds_all(stores)
    assert await house.noted() == noted
