"""Stores of earlier versions, each of four files, as the code of 3a9ed97 and of b9b2a24 has written them.

Calls of one run, by step: 1 intended, 2 sent, 3 a job known (of a pipeline), 4 the same of one that reads, 5 answered
and not published, 6 published, 7 sent and its intent lost (it reads), 8 refused. Beside them: a late job, an event from
outside, and what others are told: two that wait, and one each that arrived, was given up and was not wanted.
"""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import NeverStarted, ToolCall, ToolOutcome, Unknown, Verdict
from ductile_gateway.store import FILE, open_store
from ductile_gateway.store.deliveries import SqliteDeliveries
from ductile_gateway.store.ledger import SqliteLedger
from ductile_gateway.store.outbox import SqliteOutbox
from ductile_gateway.store.receipts import SqliteOverdue
from groundwork.service.errors import Misconfigured
from tests.gateway.parts import NOON, RUN, FakeRunner, World, a_request, asked_for
from tests.gateway.stores import KeptReceipts, opened
from tests.samples import samples

VERSIONS = samples("gateway.sql")
READS = (4, 7)
TO_BE_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from ductile_gateway.store import open_store

folder, left = Path(sys.argv[1]), int(sys.argv[2])

def strike(event, arguments):
    global left
    if event in ("sqlite3.connect", "os.remove") and str(folder) in str(arguments[0]):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with open_store(folder):
        pass

sys.addaudithook(strike)
asyncio.run(main())
"""


@pytest.fixture(params=VERSIONS, ids=lambda path: path.parent.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write_store(request.param, tmp_path)
    return tmp_path


def write_store(dump: Path, folder: Path) -> None:
    """The files of a dump: each begins with a comment that is its name."""
    scripts: dict[str, list[str]] = {}
    for line in dump.read_text().splitlines():
        if line.startswith("-- ") and line.endswith(".db"):
            lines = scripts.setdefault(line.removeprefix("-- "), [])
        else:
            lines.append(line)
    for name, script in scripts.items():
        with closing(sqlite3.connect(folder / name)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript("\n".join(script))


class Jobs(FakeRunner):
    """Knows of calls what their receipts say: jobs have ended well, and what was merely sent is not found."""

    def __init__(self, receipts: KeptReceipts) -> None:
        super().__init__(remembers=False)
        self.receipts = receipts
        self.found: dict[str, Any] = {}

    async def resume(self, call: ToolCall) -> Verdict:
        receipt = self.found[call.key] = await self.receipts.find(call.key)
        if receipt is None:
            return NeverStarted()
        return ToolOutcome("ok", text=f"as {receipt.job_id}") if receipt.job_id else Unknown("lost")

    async def forget(self, key: str) -> None:
        await self.receipts.drop(key)


def asked(step: int) -> Any:
    if step in READS:
        return asked_for(a_request(step=step))
    return asked_for(a_request("save", {"é": [1.5, None]}, step=step))


async def assert_nothing_is_lost(folder: Path) -> None:
    """A new gateway finishes what is open, says again what was not published, and runs no finished write again."""
    async with opened(folder, KeptReceipts) as receipts:
        runner = Jobs(receipts)
        world = World(ledger=receipts.ledger, runner=runner)
        world.clock.pass_by(3600)
        relay = world.relay()
        await relay.recover()
        await relay.say_again()
        executed = {int(call.key.split(":")[1]) for call in runner.executed}
        for step in range(1, 9):
            await world.relay().take(asked(step))
        assert executed == {1}
        assert [int(call.key.split(":")[1]) for call in runner.executed] == [1, 7]
        results = {result.step: result for result in world.bus.results}
    told = {step: result.error.error_class if result.error else result.status for step, result in results.items()}
    assert told == dict.fromkeys(range(1, 8), "ok") | {2: "in_doubt", 8: "not_allowed"}
    texts = {step: result.result.summary for step, result in results.items() if result.result}
    assert texts == {1: "done", 3: "as job-3", 4: "as job-4", 5: "saved before", 6: "saved before", 7: "done"}
    sent, piped = runner.found[asked(2).key], runner.found[asked(3).key]
    assert (sent.way, piped.way, sent.begun_at) == ("plugin", "pipeline", NOON + timedelta(seconds=1))


async def assert_the_rest_is_there(folder: Path) -> None:
    async with open_store(folder) as file:
        (late,) = SqliteOverdue(file).all()
        assert (late.key, late.job.job_id, late.job.pipeline) == ("an-old-call", "job-late", True)
        assert await SqliteDeliveries(file).find("github", "d-1") == "agentic:start:github:d-1"
        assert await SqliteLedger(file).name_artifacts(RUN, "another", [("page.html", "b.html")], ["x"], [1]) == (
            "b.html",
        )
        outbox = SqliteOutbox(file)
        (waits,) = await outbox.due("relay", NOON + timedelta(hours=1), 9)
        (postponed,) = await outbox.due("example.org", NOON + timedelta(hours=1), 9)
        assert (waits.key, waits.body) == ("k-0", b'{"n":0}')
        assert (postponed.key, postponed.tries, postponed.url) == ("k-1", 3, "https://example.org/a")
        assert await outbox.due("example.org", NOON + timedelta(seconds=499), 9) == []
        assert (outbox.backlog().waiting, outbox.backlog().why, outbox.backlog().dead) == (2, "503", 1)


def left_in(folder: Path) -> Iterator[str]:
    return (path.name for path in folder.iterdir())


async def test_a_new_gateway_takes_over_what_an_earlier_one_has_left(folder: Path) -> None:
    await assert_the_rest_is_there(folder)
    await assert_nothing_is_lost(folder)
    assert set(left_in(folder)) == {FILE}


@pytest.mark.parametrize("dump", VERSIONS, ids=lambda path: path.parent.name)
async def test_kill_9_at_any_moment_of_it_loses_nothing_also_twice(dump: Path, tmp_path: Path) -> None:
    strike, ended = 0, False
    while not ended:
        strike += 1
        folder = tmp_path / str(strike)
        folder.mkdir()
        write_store(dump, folder)
        for _ in range(2):
            started = [sys.executable, "-c", TO_BE_KILLED, str(folder), str(strike)]
            ended = (await asyncio.to_thread(subprocess.run, started, check=False, timeout=60)).returncode == 0
        await assert_the_rest_is_there(folder)
        await assert_nothing_is_lost(folder)
    assert strike > 3 * len(("opened", "removed")), "it was killed at each of three files"


async def test_a_file_that_cannot_be_read_is_named_and_stays(folder: Path) -> None:
    (folder / "outbox.db").write_bytes(b"no database " * 100)
    with pytest.raises(Misconfigured, match=r"outbox\.db"):
        async with open_store(folder):
            pass
    assert "outbox.db" in left_in(folder)
