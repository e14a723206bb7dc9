"""The SQLite store against a model of dicts: whatever is done in whatever order, and wherever the process dies."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_service.core.waiting import Status
from agent_service.errors import VersionMoved, WakeConflict
from agent_service.journal import Run
from agent_service.store.sqlite import SqliteStore
from tests.kit.runs import run_id, wake_of, whole_run

T = TypeVar("T")

RUNS = {number: whole_run(number, steps=2) for number in range(1, 5)}
numbers = st.sampled_from(sorted(RUNS))


class StoreMachine(RuleBasedStateMachine):
    """`length` of each run's journal, how far it is surely `told`, and how far it perhaps is (`said`)."""

    def __init__(self) -> None:
        super().__init__()
        self.length = dict.fromkeys(RUNS, 0)
        self.told = dict.fromkeys(RUNS, 0)
        self.said = dict.fromkeys(RUNS, 0)
        self.folders = [Path(tempfile.mkdtemp(prefix="store-"))]
        self.runner = asyncio.Runner()
        self.open()

    def open(self) -> None:
        self.opened = AsyncExitStack()
        self.store = self.run(self.opened.enter_async_context(SqliteStore.open(self.folders[-1])))

    def run(self, action: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await action

        return self.runner.run(awaited())

    @rule(number=numbers, digest=st.sampled_from(["one", "another"]))
    def accept(self, number: int, digest: str) -> None:
        first = RUNS[number][0]
        accepting = self.store.accept(wake_of(first, digest), first)
        if self.length[number] and digest != "one":
            with pytest.raises(WakeConflict):
                self.run(accepting)
        elif digest == "one":
            assert self.run(accepting) == run_id(number)
            self.stored(number, max(1, self.length[number]))
        else:
            accepting.close()

    @rule(number=numbers)
    def commit(self, number: int) -> None:
        length = self.length[number]
        if 0 < length < len(RUNS[number]):
            self.run(self.store.commit(RUNS[number][length]))
            self.stored(number, length + 1)

    @rule(number=numbers, index=st.integers(1, 7))
    def commit_out_of_turn(self, number: int, index: int) -> None:
        if index != self.length[number] or index == 0:
            with pytest.raises(VersionMoved):
                self.run(self.store.commit(RUNS[number][index]))

    @rule(number=numbers, seq=st.integers(1, 8))
    def tell(self, number: int, seq: int) -> None:
        if self.said[number] < seq <= self.length[number]:
            self.run(self.say(number, seq))
            self.said[number] = seq

    async def say(self, number: int, seq: int) -> None:
        self.store.told(run_id(number), seq)

    @rule()
    def crash(self) -> None:
        """Go on from the files as they are at this moment; the old process ends without being asked."""
        self.folders.append(Path(tempfile.mkdtemp(prefix="store-")))
        for file in self.folders[-2].glob("runs.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, self.folders[-1])
        self.run(self.opened.aclose())
        self.open()
        self.how_far_runs_are_told_is_known()
        # What was said last may or may not have been stored; from now on the store itself says how far it came.
        untold = {run.run_id: run.seqs[0] - 1 for run in self.run(self.store.untold(1000))}
        self.told = self.said = {n: untold.get(run_id(n), length) for n, length in self.length.items()}
        self.said = dict(self.told)

    @invariant()
    def every_run_is_as_it_was_last_acknowledged(self) -> None:
        for number, length in self.length.items():
            commits = RUNS[number][:length]
            expected = Run(state=commits[-1].state, head=commits[-1].entry.hash) if commits else None
            assert self.run(self.store.load(run_id(number))) == expected
            assert list(self.run(self.store.entries(run_id(number)))) == [commit.entry for commit in commits]

    @invariant()
    def runs_are_counted_and_listed_by_their_status(self) -> None:
        status = {run_id(n): RUNS[n][length - 1].state.status for n, length in self.length.items() if length}
        counts = self.run(self.store.counts())
        assert counts == {each: list(status.values()).count(each) for each in Status}
        lines = self.run(self.store.runs(limit=100))
        assert [(line.run_id, line.status) for line in lines] == sorted(status.items(), reverse=True)

    @invariant()
    def how_far_runs_are_told_is_known(self) -> None:
        untold = {run.run_id: run for run in self.run(self.store.untold(1000))}
        for number, length in self.length.items():
            run = untold.pop(run_id(number), None)
            assert self.told[number] <= (run.seqs[0] - 1 if run else length) <= self.said[number]
            assert run is None or run.seqs[-1] == length
        assert untold == {}

    def stored(self, number: int, length: int) -> None:
        """A write was acknowledged, and with it how far the run had been told before."""
        if length > self.length[number]:
            self.told[number] = self.said[number]
        self.length[number] = length

    def teardown(self) -> None:
        self.run(self.opened.aclose())
        self.runner.close()
        for folder in self.folders:
            shutil.rmtree(folder)


StoreMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None, derandomize=True)
TestTheStoreAgainstItsModel = StoreMachine.TestCase
