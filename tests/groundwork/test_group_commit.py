"""Group commit: acknowledged writes survive any disk failure, and refused ones are not stored."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import pytest

from groundwork.service.errors import Broken, TryAgain
from groundwork.sqlite.group_commit import LONGEST_LOG, GroupCommit
from groundwork.sqlite.reserve import DiskReserve
from tests.kit.disks import Disk, Step, watched_disk
from tests.kit.waiting import until

PAGE = 4096
Work = Callable[[sqlite3.Connection], object]
Ends = dict[int, int | Exception]
"""Per write: the number of disk operations before its acknowledgement, or the error."""


class VersionMovedError(Exception):
    pass


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return prepared(tmp_path / "store")


@pytest.fixture
async def store(path: Path) -> AsyncIterator[GroupCommit]:
    store = GroupCommit(path)
    yield store
    await store.close()


def prepared(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "store.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, body TEXT) STRICT")
        connection.execute("CREATE TABLE run (version INTEGER) STRICT")
        connection.execute("INSERT INTO run VALUES (0)")
        connection.commit()
    return path


def insert(number: int, size: int = 0) -> Callable[[sqlite3.Connection], int]:
    def work(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO entry VALUES (?, ?)", (number, "x" * size))
        return number

    return work


def refuse(_: sqlite3.Connection) -> None:
    raise VersionMovedError


def insert_then_refuse(connection: sqlite3.Connection) -> None:
    insert(999)(connection)
    raise VersionMovedError


def advance(connection: sqlite3.Connection) -> None:
    """Compare and swap from version 0 to 1."""
    if connection.execute("UPDATE run SET version = 1 WHERE version = 0").rowcount == 0:
        raise VersionMovedError


def conflict(connection: sqlite3.Connection) -> None:
    """Ends the transaction that it shares with others."""
    connection.execute("INSERT OR ROLLBACK INTO entry VALUES (0, '')")


def hidden_conflict(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.IntegrityError):
        conflict(connection)


def stored(path: Path) -> list[int]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        return [row[0] for row in reader.execute("SELECT id FROM entry ORDER BY id")]


def commits(path: Path) -> int:
    """Commits in the WAL: the frames that carry a database size, under the salt of the header."""
    wal = path.with_name(path.name + "-wal").read_bytes()
    frames = (wal[start : start + 24] for start in range(32, len(wal), 24 + PAGE))
    return sum(frame[8:16] == wal[16:24] and frame[4:8] != bytes(4) for frame in frames)


async def as_one_group(store: GroupCommit, *works: Work) -> list[object]:
    """Let all works queue up behind one that holds the writer, so that they are settled together."""
    held, release = threading.Event(), threading.Event()

    def hold(_: sqlite3.Connection) -> None:
        held.set()
        release.wait(10)

    first = asyncio.ensure_future(store.write(hold))
    await until(held.is_set)
    rest = asyncio.gather(*(store.write(work) for work in works), return_exceptions=True)
    await asyncio.sleep(0)
    release.set()
    await first
    return await rest


async def test_writes_that_wait_together_share_one_commit(store: GroupCommit, path: Path) -> None:
    before = commits(path)
    assert await as_one_group(store, *(insert(number) for number in range(200))) == list(range(200))
    assert commits(path) - before == 1
    assert len(stored(path)) == 200


@pytest.mark.parametrize(
    ("works", "ends"),
    [
        ([insert(1), refuse, insert(2)], [1, VersionMovedError, 2]),
        (
            [insert(1), insert_then_refuse, insert(2), insert_then_refuse, insert(3)],
            [1, VersionMovedError, 2, VersionMovedError, 3],
        ),
        ([insert(1), conflict, hidden_conflict, insert(2)], [1, sqlite3.IntegrityError, RuntimeError, 2]),
        ([advance] * 20, [type(None)] + [VersionMovedError] * 19),
    ],
    ids=["refuses", "refuses after it wrote", "ends the transaction", "swaps from one version"],
)
async def test_a_work_that_fails_leaves_nothing_and_harms_no_other(
    store: GroupCommit, path: Path, works: list[Work], ends: list[object]
) -> None:
    await store.write(insert(0))
    answers = await as_one_group(store, *works)
    assert [answer if isinstance(answer, int) else type(answer) for answer in answers] == ends
    assert stored(path) == [0, *(end for end in ends if isinstance(end, int))]


async def write_many(store: GroupCommit, disk: Disk, number: int = 12) -> Ends:
    ends: Ends = {}
    for one in range(number):
        try:
            if one == 0:  # often enough that the log begins anew in between
                await store.write(lambda connection: connection.execute("PRAGMA wal_autocheckpoint=8").fetchall())
            await store.write(insert(one, 3000))
            ends[one] = len(disk.steps)
        except (TryAgain, Broken) as error:
            ends[one] = error
    await store.close()
    return ends


def lost(disk: Disk, acknowledged: Ends, folder: Path, *, at_the_end: bool = False) -> int:
    """After how many of all possible power losses something is not there that had been acknowledged before."""
    folder.mkdir()
    losses = 0
    for steps, files in disk.power_losses(Random(1), at_the_end=at_the_end):  # noqa: S311 - the same each time
        for name in ("store.db", "store.db-wal", "store.db-shm"):
            (folder / name).unlink(missing_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        try:
            found = set(stored(folder / "store.db"))
        except sqlite3.DatabaseError:
            found = set()
        losses += not {one for one, end in acknowledged.items() if isinstance(end, int) and end <= steps} <= found
    return losses


@pytest.mark.parametrize("durable", [True, False])
async def test_no_power_loss_costs_an_acknowledged_write_unless_that_was_asked_for(
    path: Path, *, durable: bool
) -> None:
    with watched_disk(path.parent) as disk:
        acknowledged = await write_many(GroupCommit(path, durable=durable), disk)
    assert stored(path) == list(acknowledged)
    assert (lost(disk, acknowledged, path.parent / "after") == 0) is durable


@pytest.mark.parametrize(
    ("what", "code", "error"),
    [
        ("write", sqlite3.SQLITE_FULL, TryAgain),
        ("write", sqlite3.SQLITE_IOERR_WRITE, Broken),
        ("sync", sqlite3.SQLITE_IOERR_FSYNC, Broken),
    ],
)
async def test_whichever_step_of_the_disk_fails_what_is_acknowledged_outlives_a_power_loss(
    tmp_path: Path, what: str, code: int, error: type[Exception]
) -> None:
    """A full disk costs the one write; after an I/O error nothing is written until the file is opened again."""
    point, passed = 0, 1
    while passed >= point:
        point, passed = point + 1, 0
        path = prepared(tmp_path / str(point))

        def fails(step: Step, point: int = point) -> int:
            nonlocal passed
            passed += step.what == what
            return code if step.what == what and passed == point else 0

        with watched_disk(path.parent) as disk:
            disk.fails = fails
            ends = await write_many(GroupCommit(path), disk, 4)
        refused = [number for number, end in ends.items() if not isinstance(end, int)]
        assert all(isinstance(ends[number], error) for number in refused)
        assert refused in ([], refused[:1] if error is TryAgain else list(range(min(refused, default=0), 4)))
        assert stored(path) == [number for number in ends if number not in refused]
        assert lost(disk, ends, path.parent / "after", at_the_end=True) == 0
    assert point > 5, "there were steps to fail"


async def test_a_long_log_that_a_reader_held_up_is_cut_off_once_it_is_gone(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    store = GroupCommit(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entry").fetchall()
        await store.write(insert(1, 2 * LONGEST_LOG))
        await store.write(insert(2))
        assert log.stat().st_size > 2 * LONGEST_LOG
    for number in (3, 4):  # with the first SQLite has moved the log, with the second it begins it again
        await store.write(insert(number))
    assert log.stat().st_size <= LONGEST_LOG
    assert stored(path) == [1, 2, 3, 4]
    await store.close()


async def test_a_writer_whose_folder_is_gone_leaves_no_caller_waiting(path: Path) -> None:
    store = GroupCommit(path, reserve=DiskReserve(path))
    await store.write(insert(1))
    path.parent.rename(path.parent.with_name("elsewhere"))
    async with asyncio.timeout(30):
        for number in (2, 3):
            with pytest.raises(Broken, match="restart the process"):
                await store.write(insert(number))
        await store.close()


async def test_closing_finishes_all_that_was_asked_before_and_refuses_what_comes_after(path: Path) -> None:
    store = GroupCommit(path)
    writes = [asyncio.ensure_future(store.write(insert(number))) for number in range(50)]
    await asyncio.sleep(0)
    store.write(insert(50))
    await store.close()
    await store.close()
    assert await asyncio.gather(*writes) == list(range(50))
    assert stored(path) == list(range(51))
    with pytest.raises(TryAgain):
        await store.write(insert(51))
