# ruff: noqa: S608 # the statements of an attacker with a hand on the file
"""A store that was set back, cut, thinned out or exchanged is known by its anchors, and no agent begins with it."""

import contextlib
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from agent_service.anchoring import Anchoring, Witnesses
from agent_service.anchors import Anchor
from agent_service.core.waiting import FINAL
from agent_service.errors import Changed
from agent_service.retention import Over
from agent_service.store.anchor_file import AnchorFile
from agent_service.store.seals import Seals
from agent_service.store.sql.database import FILE
from agent_service.store.sqlite import SqliteStore
from groundwork.service import key_ring
from groundwork.service.errors import Misconfigured, TryAgain
from groundwork.service.key_ring import Key, KeyRing
from tests.kit.fakes import FakeClock
from tests.kit.runs import NOON, run_id, wake_of, whole_run
from tests.kit.waiting import until

STORE = "store_1"
LATER = NOON + timedelta(days=2)
Hand = Callable[[Path], object]


class Board:
    """Anchors on a bus. Fills the port AnchorBoard."""

    def __init__(self) -> None:
        self.anchors: dict[str, Anchor] = {}
        self.away = False

    async def get(self, store: str) -> Anchor | None:
        return self.anchors.get(store)

    async def put(self, anchor: Anchor) -> None:
        if self.away:
            raise TryAgain("the bus is away")
        self.anchors[anchor.store] = anchor


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "agent.keys"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "agent"


@pytest.fixture
def board() -> Board:
    return Board()


@asynccontextmanager
async def working(folder: Path, keys: Path, board: Board, store_id: str = STORE) -> AsyncIterator[SqliteStore]:
    """The store as an agent opens it, and anchors it at its end."""
    ring = KeyRing.open(keys)
    witnesses = Witnesses(store=store_id, ring=ring, beside=AnchorFile(keys), bus=board)
    async with SqliteStore.open(folder, seals=Seals(ring)) as store:
        anchoring = Anchoring(store.standing(Seals(ring)), witnesses, FakeClock())
        left = await anchoring.check()
        assert left == []
        yield store
        await anchoring.say()


async def store_run(store: SqliteStore, number: int, *, but: int = 0) -> None:
    first, *others = whole_run(number)
    await store.accept(replace(wake_of(first), wake_id=run_id(number)), first)
    for commit in others[: len(others) - but]:
        await store.commit(commit)


async def an_earlier_copy(folder: Path, keys: Path, board: Board) -> Path:
    """Two runs, one of which has not ended; a copy of the store; then the end of the one, and a third run."""
    async with working(folder, keys, board) as store:
        await store_run(store, 1, but=1)
        await store_run(store, 2)
    copy = shutil.copytree(folder, folder.with_name("copy"))
    async with working(folder, keys, board) as store:
        await store.commit(whole_run(1)[-1])
        await store_run(store, 3)
    return copy


def changed(folder: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / FILE)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def set_back(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("copy"), folder)


def one_run_set_back(folder: Path) -> None:
    """The first run as it was, its end taken out of the journal, while others have gone on since."""
    ended = f"run_id = '{run_id(1)}'"
    columns = "status, version, head, summary, touched_at, due_at, state, told, seal"
    changed(
        folder,
        f"ATTACH '{folder.with_name('copy') / FILE}' AS earlier",
        f"UPDATE runs SET ({columns}) = (SELECT {columns} FROM earlier.runs WHERE {ended}) WHERE {ended}",
        f"DELETE FROM journal WHERE {ended} AND seq = (SELECT max(seq) FROM journal WHERE {ended})",
        f"DELETE FROM items WHERE {ended}",
        f"INSERT INTO items SELECT * FROM earlier.items WHERE {ended}",
    )


def without_a_run(folder: Path) -> None:
    one = f"run_id = '{run_id(2)}'"
    changed(folder, *(f"DELETE FROM {table} WHERE {one}" for table in ("items", "briefs", "journal", "runs")))


def with_the_end_cut(folder: Path) -> None:
    last = f"run_id = '{run_id(3)}'"
    changed(folder, *(f"DELETE FROM {table} WHERE {last}" for table in ("items", "briefs", "journal", "runs")))


def written_anew(folder: Path) -> None:
    changed(folder, "UPDATE journal SET hash = zeroblob(32) WHERE position = (SELECT max(position) FROM journal)")


HANDS: dict[str, tuple[Hand, str]] = {
    "set back": (set_back, r"had \d+ entries at .* and has \d+: it was set back"),
    "one run set back": (one_run_set_back, "its runs lack 1 of its entries: some were set back"),
    "a run removed": (without_a_run, "had 3 runs at .* and has 2: some were removed"),
    "cut": (with_the_end_cut, "it was set back, or cut"),
    "written anew": (written_anew, "is not the one of"),
}


async def test_a_store_goes_on_as_it_was_left_however_its_agent_ended(folder: Path, keys: Path, board: Board) -> None:
    await an_earlier_copy(folder, keys, board)
    ring = KeyRing.open(keys)
    async with SqliteStore.open(folder, seals=Seals(ring)) as killed_before_it_said_so:
        await store_run(killed_before_it_said_so, 4)
    async with working(folder, keys, board) as store:
        await store_run(store, 5)
    async with working(folder, keys, board):
        assert board.anchors[STORE].runs == 5


@pytest.mark.attack
@pytest.mark.parametrize("witness", ["the bus", "the file beside the keys"])
@pytest.mark.parametrize("hand", HANDS)
async def test_no_agent_begins_with_a_store_that_was(
    folder: Path, keys: Path, board: Board, hand: str, witness: str
) -> None:
    await an_earlier_copy(folder, keys, board)
    act, says = HANDS[hand]
    act(folder)
    if witness == "the bus":
        keys.with_name("agent.keys.anchors").unlink()
    else:
        board.anchors.clear()
    with pytest.raises(Misconfigured, match=says) as refused:
        async with working(folder, keys, board):
            pass
    assert "agentic seal" in str(refused.value)


@pytest.mark.attack
async def test_a_set_back_store_under_another_name_is_none_that_the_keys_have_sealed(
    folder: Path, keys: Path, board: Board
) -> None:
    await an_earlier_copy(folder, keys, board)
    set_back(folder)
    with pytest.raises(Misconfigured, match="not one of those that the keys have sealed"):
        async with working(folder, keys, board, "store_2"):
            pass


@pytest.mark.attack
async def test_an_anchor_that_the_agent_did_not_make_counts_for_nothing(folder: Path, keys: Path, board: Board) -> None:
    await an_earlier_copy(folder, keys, board)
    set_back(folder)
    board.anchors[STORE] = replace(board.anchors[STORE], position=1)
    with pytest.raises(Misconfigured, match="set back"):
        async with working(folder, keys, board):
            pass


async def test_a_new_store_begins_also_where_the_keys_have_sealed_another(
    folder: Path, keys: Path, board: Board
) -> None:
    await an_earlier_copy(folder, keys, board)
    shutil.rmtree(folder)
    async with working(folder, keys, board, "store_2") as store:
        await store_run(store, 1)
    async with working(folder, keys, board, "store_2") as store:
        assert await store.load(run_id(1)) is not None


async def test_what_an_earlier_version_wrote_is_sealed_once_as_it_is(
    folder: Path, keys: Path, board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    async with SqliteStore.open(folder) as unsealed:
        await store_run(unsealed, 1)
        await store_run(unsealed, 2, but=1)
    async with working(folder, keys, board) as store:
        assert await store.load(run_id(1)) is not None
        await store.commit(whole_run(2)[-1])
    assert [record.message for record in caplog.records] == ["runs of an earlier version were sealed as they are"]
    changed(folder, f"UPDATE runs SET seal = NULL WHERE run_id = '{run_id(1)}'")
    ring = KeyRing.open(keys)
    witnesses = Witnesses(store=STORE, ring=ring, beside=AnchorFile(keys), bus=board)
    async with SqliteStore.open(folder, seals=Seals(ring)) as store:
        assert await Anchoring(store.standing(Seals(ring)), witnesses, FakeClock()).check() == [run_id(1)]


async def test_lost_keys_are_named_and_not_taken_for_an_attack(folder: Path, keys: Path, board: Board) -> None:
    await an_earlier_copy(folder, keys, board)
    lost = KeyRing.open(keys).keys[0].id
    key_ring.write(keys, (Key.fresh(),))
    with pytest.raises(Misconfigured, match=f"sealed with the key {lost}, which the keys file does not hold: restore"):
        async with working(folder, keys, board):
            pass


async def test_a_key_can_be_given_up_once_a_newer_one_has_sealed_all(folder: Path, keys: Path, board: Board) -> None:
    await an_earlier_copy(folder, keys, board)
    older = KeyRing.open(keys).keys
    key_ring.write(keys, (newest := Key.fresh(), *older))
    ring = KeyRing.open(keys)
    witnesses = Witnesses(store=STORE, ring=ring, beside=AnchorFile(keys), bus=board)
    async with SqliteStore.open(folder, seals=Seals(ring)) as store:
        changed(folder, f"UPDATE runs SET summary = 'all is well' WHERE run_id = '{run_id(2)}'")
        anchoring = Anchoring(store.standing(Seals(ring)), witnesses, FakeClock())
        await anchoring.check()
        async with anchoring.kept():
            await until(lambda: board.anchors[STORE].mac.startswith(newest.id))
            await until(lambda: sealed_with(folder) == {newest.id: 2, older[0].id: 1})
    key_ring.write(keys, (newest,))
    async with working(folder, keys, board) as store:
        assert await store.load(run_id(1)) is not None
        with pytest.raises(Changed):
            await store.load(run_id(2))


def sealed_with(folder: Path) -> dict[str, int]:
    """By how many runs, for each key."""
    count = "SELECT substr(seal, 1, instr(seal, '.') - 1), count(*) FROM runs GROUP BY 1"
    with contextlib.closing(sqlite3.connect(folder / FILE)) as connection:
        return dict(connection.execute(count).fetchall())


async def test_a_bus_that_is_away_holds_up_nothing(folder: Path, keys: Path, board: Board) -> None:
    board.away = True
    async with working(folder, keys, board) as store:
        await store_run(store, 1)
    assert board.anchors == {}
    board.away = False
    async with working(folder, keys, board):
        pass
    assert board.anchors[STORE].runs == 1


async def let_go(store: SqliteStore, *numbers: int) -> None:
    """These runs are kept no longer."""
    for number in numbers:
        store.told(run_id(number), store.version(run_id(number)))
    store._write_told()
    await store._database.write(lambda _: None)
    over = Over(statuses=FINAL, before=LATER, escalated_before=LATER)
    ended = [run for run in await store.forgetting.ended(over, None, 10) if run.run_id in map(run_id, numbers)]
    assert len(await store.forgetting.forget(ended, "a rule", LATER)) == len(numbers)


async def test_a_store_whose_newest_runs_are_kept_no_longer_is_the_one_that_its_agent_left(
    folder: Path, keys: Path, board: Board
) -> None:
    async with working(folder, keys, board) as store:
        await store_run(store, 1)
        await store_run(store, 2)
    async with working(folder, keys, board) as store:
        await let_go(store, 1, 2)
    async with working(folder, keys, board) as store:
        await store_run(store, 3)
    async with working(folder, keys, board):
        pass


async def test_an_anchor_holds_that_names_an_entry_of_a_run_that_went_later(
    folder: Path, keys: Path, board: Board
) -> None:
    async with working(folder, keys, board) as store:
        await store_run(store, 1, but=2)
    said = board.anchors[STORE]
    async with working(folder, keys, board) as store:
        for commit in whole_run(1)[-2:]:
            await store.commit(commit)
        await let_go(store, 1)
    board.anchors[STORE] = said
    async with working(folder, keys, board):
        pass


@pytest.mark.parametrize("forged", ["seal = seal || 'x'", "head = zeroblob(32)", "version = version - 1"])
async def test_a_tombstone_that_other_hands_wrote_hides_no_missing_run(
    folder: Path, keys: Path, board: Board, forged: str
) -> None:
    async with working(folder, keys, board) as store:
        await store_run(store, 1)
        await let_go(store, 1)
    with contextlib.closing(sqlite3.connect(folder / FILE, isolation_level=None)) as hand:
        hand.execute(f"UPDATE gone SET {forged}")
    with pytest.raises(Misconfigured, match="not as its agent left it"):
        async with working(folder, keys, board):
            pass
