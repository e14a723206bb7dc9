"""Disks: databases of processes, in memory and without threads, which outlive a process and may be full or fail.

A commit is an effect: the process may be killed before it. Unsynced writes are then lost.
"""

import asyncio
import contextlib
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from groundwork.sqlite.errors import full_error, is_file_error, storage_error
from groundwork.sqlite.file import SqliteFile, Values, migrate
from groundwork.sqlite.group_commit import OnCommit
from tests.sim.machines.boundary import Boundary
from tests.sim.machines.time import Killed, Process

T = TypeVar("T")
LATER_S = 0.05
FASTEST, SLOWEST = 0.0005, 0.004
"""Seconds of a commit."""


@cache
def _empty(migrations: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "empty.db")
        migrate(path, Path(migrations))
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            return connection.serialize()


def _opened(content: bytes) -> sqlite3.Connection:
    made = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
    made.deserialize(content)
    made.execute("PRAGMA foreign_keys=ON")
    return made


class Disk:
    """Disk of one machine. `full` refuses writes that free no space."""

    def __init__(self, boundary: Boundary) -> None:
        self.full = False
        self.databases: dict[str, sqlite3.Connection] = {}
        self.boundary = boundary

    def copied(self) -> dict[str, bytes]:
        return {name: connection.serialize() for name, connection in self.databases.items()}

    def replaced(self, databases: Mapping[str, bytes]) -> None:
        self.databases = {name: _opened(content) for name, content in databases.items()}

    def opener(self, process: Process) -> Callable[..., Any]:
        """Implements groundwork.sqlite.file.Opener for one life of a process."""

        @contextlib.asynccontextmanager
        async def opened(
            path: Path, migrations: Traversable, durable: bool, reserve: bool
        ) -> AsyncIterator[SqliteFile]:
            del durable, reserve
            file = SimFile(path, self, process, self._database(path.name, migrations))
            try:
                yield file
            finally:
                file.close()

        return opened

    def _database(self, name: str, migrations: Traversable) -> sqlite3.Connection:
        if name not in self.databases:
            self.databases[name] = _opened(_empty(str(migrations)))
        return self.databases[name]


class SimFile(SqliteFile):
    def __init__(self, path: Path, disk: Disk, process: Process, connection: sqlite3.Connection) -> None:
        self.path = path
        self.closing, self._writer = False, None
        self._disk = disk
        self._process = process
        self._connection = connection
        self._later: list[Callable[[sqlite3.Connection], object]] = []

    async def write(self, work: Callable[[sqlite3.Connection], T], *, makes_room: bool = False) -> T:
        if self.closing:
            raise storage_error(sqlite3.ProgrammingError("closing"), self.path)
        if self._disk.full and not makes_room:
            raise full_error(self.path, "the disk is full")
        done = self._commit(work)
        await asyncio.sleep(self._disk.boundary.scheduler.random.uniform(FASTEST, SLOWEST))
        return done

    def later(self, work: Callable[[sqlite3.Connection], object], *, makes_room: bool = False) -> None:
        del makes_room
        if not self.closing and self._process.alive:
            self._later.append(work)
            if len(self._later) == 1:
                self._process.call_later(LATER_S, self._write_later)

    def observe(self, on_commit: OnCommit) -> None:
        del on_commit

    @contextlib.contextmanager
    def making_room(self) -> Iterator[None]:
        yield

    def look_up(self, statement: str, values: Values = ()) -> list[Any]:
        if not self._process.alive:
            raise Killed
        if self.closing:
            self._refuse_closing()
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            self._fail(error)

    async def read(self, statement: str, values: Values = ()) -> list[Any]:
        rows = self.look_up(statement, values)
        await asyncio.sleep(0)
        return rows

    async def shrink(self) -> bool:
        return False

    def close(self) -> None:
        if self._process.alive:
            self._write_later()
        self.closing = True

    def _commit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        boundary, connection = self._disk.boundary, self._connection
        boundary.passes(self._process, [f"commit to {self.path.name}"])
        later, self._later = self._later, []
        connection.execute("BEGIN")
        try:
            for each in later:
                each(connection)
            done = work(connection)
            boundary.commits(self._process.name, connection)
        except BaseException as error:
            connection.execute("ROLLBACK")
            if is_file_error(error):
                raise storage_error(error, self.path) from error
            raise
        connection.execute("COMMIT" if boundary.keeps(self._process.name) else "ROLLBACK")
        boundary.committed(self._process.name, connection)
        return done

    def _write_later(self) -> None:
        if self._later and not self._disk.full:
            with contextlib.suppress(Killed):
                self._commit(lambda _: None)
