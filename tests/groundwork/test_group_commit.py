"""Group commit: what it acknowledges is stored, what it refuses is not, and waiting writes share one commit."""

import asyncio
import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from groundwork.service.errors import Broken, TryAgain
from groundwork.sqlite.group_commit import LONG_LOG, GroupCommit
from tests.kit.waiting import until

PROJECT = Path(__file__).parents[2]
PAGE = 4096


class VersionMovedError(Exception):
    pass


def prepared(folder: Path) -> Path:
    path = folder / "store.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, body TEXT) STRICT")
        connection.execute("CREATE TABLE run (version INTEGER) STRICT")
        connection.execute("INSERT INTO run VALUES (0)")
        connection.commit()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return prepared(tmp_path)


@pytest.fixture
async def store(path: Path) -> AsyncIterator[GroupCommit]:
    store = GroupCommit(path, busy_seconds=0.1)
    yield store
    await store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 512 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root in a machine that allows it can mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def insert(number: int, body: str = "") -> Callable[[sqlite3.Connection], int]:
    def work(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO entry VALUES (?, ?)", (number, body))
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


def stored(path: Path) -> list[int]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        return [row[0] for row in reader.execute("SELECT id FROM entry ORDER BY id")]


def commits(path: Path) -> int:
    """Commits in the WAL: the frames that carry a database size, under the salt of the header."""
    wal = path.with_name(path.name + "-wal").read_bytes()
    frames = (wal[start : start + 24] for start in range(32, len(wal), 24 + PAGE))
    return sum(frame[8:16] == wal[16:24] and frame[4:8] != bytes(4) for frame in frames)


@contextlib.contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Let the system refuse to write beyond `size`: SQLite sees an I/O error."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def as_one_group(
    store: GroupCommit, *works: Callable[[sqlite3.Connection], object]
) -> list[object | BaseException]:
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


async def test_a_work_that_refuses_before_writing_fails_alone_and_costs_no_second_try(
    store: GroupCommit, path: Path
) -> None:
    tries: list[int] = []

    def counted(connection: sqlite3.Connection) -> int:
        tries.append(1)
        return insert(1)(connection)

    one, refused, two = await as_one_group(store, counted, refuse, insert(2))
    assert (one, two) == (1, 2)
    assert isinstance(refused, VersionMovedError)
    assert stored(path) == [1, 2]
    assert len(tries) == 1


async def test_a_work_that_fails_after_writing_leaves_nothing_and_harms_no_other(
    store: GroupCommit, path: Path
) -> None:
    answers = await as_one_group(store, insert(1), insert_then_refuse, insert(2), insert_then_refuse, insert(3))
    assert [answer for answer in answers if isinstance(answer, int)] == [1, 2, 3]
    assert [type(answer) for answer in answers].count(VersionMovedError) == 2
    assert stored(path) == [1, 2, 3]


async def test_a_work_that_ends_the_shared_transaction_fails_alone(store: GroupCommit, path: Path) -> None:
    await store.write(insert(1))

    def conflict(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT OR ROLLBACK INTO entry VALUES (1, '')")

    def hidden_conflict(connection: sqlite3.Connection) -> None:
        with contextlib.suppress(sqlite3.IntegrityError):
            conflict(connection)

    two, conflicted, hidden, three = await as_one_group(store, insert(2), conflict, hidden_conflict, insert(3))
    assert (two, three) == (2, 3)
    assert isinstance(conflicted, sqlite3.IntegrityError)
    assert isinstance(hidden, RuntimeError)
    assert stored(path) == [1, 2, 3]


async def test_of_many_compare_and_swaps_from_one_version_one_wins(store: GroupCommit) -> None:
    answers = await as_one_group(store, *[advance] * 20)
    assert answers.count(None) == 1
    assert sum(isinstance(answer, VersionMovedError) for answer in answers) == 19


async def test_a_full_disk_loses_no_acknowledged_write_and_works_again_with_room(small_disk: Path) -> None:
    path = prepared(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(200_000))
    store = GroupCommit(path)
    acknowledged: list[int] = []

    async def fill() -> None:
        for number in range(1000):
            await store.write(insert(number, "x" * 1000))
            acknowledged.append(number)

    with pytest.raises(TryAgain, match="nothing of this write is stored"):
        await fill()
    assert acknowledged
    assert stored(path) == acknowledged
    ballast.unlink()
    acknowledged.append(await store.write(insert(5000)))
    await store.close()
    assert stored(path) == acknowledged


async def test_after_an_io_error_it_refuses_all_writes_until_it_is_opened_again(path: Path) -> None:
    store = GroupCommit(path)
    await store.write(insert(1))
    with files_limited_to(10 * PAGE), pytest.raises(Broken, match="restart the process"):
        await store.write(insert(2, "x" * 20 * PAGE))
    with pytest.raises(Broken, match="disk I/O error"):
        await store.write(insert(3))
    await store.close()
    again = GroupCommit(path)
    await again.write(insert(4))
    await again.close()
    assert stored(path) == [1, 4]


async def test_a_long_log_is_emptied_once_nobody_writes_and_waits_for_no_one_who_reads(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    store = GroupCommit(path, busy_seconds=3600, rest_seconds=0)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entry").fetchall()
        await store.write(insert(1, "x" * 2 * LONG_LOG))
        await store.write(insert(2))
        assert log.stat().st_size > LONG_LOG
    await store.write(insert(3))
    await until(lambda: log.stat().st_size < LONG_LOG)
    await store.write(insert(4))
    assert stored(path) == [1, 2, 3, 4]
    await store.close()


async def test_housekeeping_waits_for_the_next_write_and_shares_its_commit(path: Path) -> None:
    store = GroupCommit(path, quiet_seconds=3600)
    before = commits(path)
    store.later(insert(1))
    store.later(insert(2))
    with pytest.raises(AssertionError):
        await until(lambda: stored(path) != [], within_s=0.1)
    await store.write(insert(3))
    assert stored(path) == [1, 2, 3]
    assert commits(path) - before == 1
    await store.close()


async def test_closing_finishes_all_that_was_asked_before_and_refuses_what_comes_after(path: Path) -> None:
    store = GroupCommit(path, quiet_seconds=3600)
    writes = [asyncio.ensure_future(store.write(insert(number))) for number in range(50)]
    await asyncio.sleep(0)
    store.later(insert(50))
    await store.close()
    await store.close()
    assert await asyncio.gather(*writes) == list(range(50))
    assert stored(path) == list(range(51))
    with pytest.raises(TryAgain, match="after the next start"):
        await store.write(insert(51))


WRITE_AND_SAY = """
import asyncio, os, sys
from pathlib import Path
from groundwork.sqlite.errors import Full
from groundwork.sqlite.group_commit import LONG_LOG, Group, GroupCommit

async def writer(store, number):
    while True:
        await store.write(lambda connection: connection.execute("INSERT INTO entry VALUES (?, '')", (number,)))
        os.write(1, f"{number}\\n".encode())
        number += 16

async def main(path, start):
    store = GroupCommit(path)
    await asyncio.gather(*(writer(store, start + n) for n in range(16)))

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


def test_kill_9_loses_no_acknowledged_write(path: Path) -> None:
    acknowledged: set[int] = set()
    for start in range(0, 5_000_000, 1_000_000):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITE_AND_SAY, str(path), str(start)], stdout=subprocess.PIPE, cwd=PROJECT
        )
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(100)]
        child.send_signal(signal.SIGKILL)
        said += child.stdout.readlines()
        child.wait()
        child.stdout.close()
        acknowledged |= {int(line) for line in said if line.endswith(b"\n")}
    assert len(acknowledged) >= 500
    assert acknowledged <= set(stored(path))
