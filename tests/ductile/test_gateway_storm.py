"""A gateway that is killed at random while dozens of calls are in flight, before a Ductile whose answers get lost.

What is drawn comes from one seed; the moment that it hits is the machine's. So it is not foreseen how a call ends, but
told afterwards from what was seen outside of the gateway: which answers were lost on the wire, which starts were left
without an answer by a kill, and which jobs there are. GATEWAY_STORM_CALLS asks for more calls, and more lives.
"""

import asyncio
import json
import logging
import os
import random
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from schemas.events import ToolResult
from tests.ductile.cut_wire import Cut, Rule, Way
from tests.ductile.fake import FakeDuctile, Outcome, answers
from tests.ductile.gateway_house import House, ending, endings, house, kill
from tests.ductile.under_test import Execution

CALLS = int(os.environ.get("GATEWAY_STORM_CALLS", "100"))
CALLS_IN_A_LIFE = 20
LONGEST_LIFE_S = 1.0
SLOWEST_ANSWER_S = 0.15
SEED = 20261122
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"

log = logging.getLogger(__name__)

_STARTED = re.compile(rb'"fate": "(?P<fate>\w+)".*"agentic_call_id": "(?P<key>[^"]+)"')


@dataclass(slots=True)
class Losses:
    """What becomes of a start is written in its payload; it comes to pass once for each call. `suffered`: by whom."""

    suffered: dict[str, str] = field(default_factory=dict)

    def rule(self) -> Rule:
        kept, fate = b"", ""

        async def pass_on(way: Way, chunk: bytes) -> bytes:
            nonlocal kept, fate
            if way == "back":
                return self._answer(fate, chunk)
            kept += chunk
            started = _STARTED.search(kept)
            if kept.startswith(b"POST /plugin/probe/") and not started:
                return b""
            fate = self._fate(started) if started else fate
            if fate == "never_sent":
                raise Cut
            whole, kept = kept, b""
            return whole

        return pass_on

    def _fate(self, started: re.Match[bytes]) -> str:
        fate, key = started["fate"].decode(), started["key"].decode()
        if fate == "none" or key in self.suffered:
            return "none"
        self.suffered[key] = fate
        return fate

    def _answer(self, fate: str, chunk: bytes) -> bytes:
        if fate == "lost":
            raise Cut
        if fate == "unavailable":
            return UNAVAILABLE if chunk.startswith(b"HTTP/") else b""
        return chunk


@dataclass(slots=True)
class Storm:
    """What was asked for and what was seen. `left_open`: calls whose start had no answer yet when a kill came."""

    house: House
    fake: FakeDuctile
    losses: Losses
    dice: random.Random
    left_open: set[str] = field(default_factory=set)
    lives: int = 0

    async def ask(self, first: int, number: int) -> None:
        for step in range(first, first + number):
            command = self.dice.choice(("handle", "handle", "look", "note"))
            fates = ("lost", "unavailable", "never_sent")
            payload = {
                "quiet": self.dice.random() < 0.5,
                "takes_s": round(self.dice.uniform(0, 0.8), 3),
                "fate": self.dice.choice(fates) if self.dice.random() < 0.2 else "none",
            }
            await self.house.ask(command, payload, step=step)

    async def live(self) -> None:
        """One life of a gateway, and what it leaves open."""
        self.lives += 1
        self.fake.faults.slow_seconds = self.dice.choice((0, SLOWEST_ANSWER_S / 3, SLOWEST_ANSWER_S))
        async with self.house.living() as process:
            await asyncio.sleep(self.dice.uniform(0, LONGEST_LIFE_S))
            kill(process)
        self.left_open |= self.house.disk.unanswered()

    async def to_the_end(self) -> dict[str, ToolResult]:
        """A last life, in which the agent asks once more for what it is told to."""
        self.lives += 1
        self.fake.faults.slow_seconds = 0
        async with self.house.living():
            told = await self.house.answers(within_s=60)
            for key, result in told.items():
                if result.error and result.error.retryable:
                    request = self.house.asked[key]
                    again = dict(request.tool_payload) | {"fate": "none"}
                    await self.house.ask(request.tool_command, again, step=request.step, attempt=2)
            return await self.house.answers(within_s=60)

    def may_end(self, key: str) -> set[str]:
        """How the call may have ended, and must have if it is one way only."""
        request = self.house.asked[key]
        if key not in self.left_open and key not in self.losses.suffered:
            return {"ok"}
        if request.tool_command != "handle":
            return {"ok", "transient"} if key in self.losses.suffered else {"ok"}
        if self.losses.suffered.get(key) in ("lost", "unavailable"):  # Ductile has a job of it
            return {"in_doubt"} if request.tool_payload["quiet"] else {"ok"}
        # What never arrived is made again once that is sure, and with it what a kill left open.
        return {"in_doubt", "ok"} if request.tool_payload["quiet"] or not self.house.jobs()[key] else {"ok"}

    def figures(self, told: dict[str, ToolResult], began: float) -> dict[str, object]:
        jobs = self.house.jobs()
        writes = {key for key in told if self.house.asked[key].tool_command == "handle"}
        doubtful = writes & (self.left_open | self.losses.suffered.keys())
        return {
            "calls": len(told),
            "writes": len(writes),
            "lives": self.lives,
            **endings(told.values()),
            "left open by a kill": len(self.left_open),
            "answers lost": len(self.losses.suffered),
            "found again": sum(ending(told[key]) == "ok" for key in doubtful),
            "asked for again": sum(request.attempt == 2 for request in self.house.asked.values()),
            "repeated": sum(len(jobs[key]) > 1 for key in told),
            "seconds": round(time.monotonic() - began, 1),
        }


def behaves(execution: Execution) -> Outcome:
    """A tool that takes its time, and shows what it was given unless it is a quiet one."""
    threading.Event().wait(execution.payload["takes_s"])
    return answers("done", output={} if execution.payload["quiet"] else dict(execution.payload))(execution)


@pytest.mark.timeout(60 + CALLS)
async def test_no_write_is_started_twice_and_every_doubt_is_told_however_often_the_gateway_is_killed(
    tmp_path: Path, fake: FakeDuctile
) -> None:
    began, losses = time.monotonic(), Losses()
    for command in ("handle", "look", "note"):
        fake.on("probe", command, behaves)
    async with house(tmp_path, fake, on_the_way_to_ductile=losses.rule, idempotent=["probe/note"]) as made:
        storm = Storm(made, fake, losses, random.Random(SEED))  # noqa: S311 - a course that can be repeated is wanted
        for first in range(1, CALLS + 1, CALLS_IN_A_LIFE):
            await storm.ask(first, CALLS_IN_A_LIFE)
            await storm.live()
        told = await storm.to_the_end()
    figures, jobs = storm.figures(told, began), made.jobs()
    log.info("%s", json.dumps(figures))
    writes = [key for key in told if made.asked[key].tool_command == "handle"]
    assert [key for key in writes if len(jobs[key]) > 1] == [], figures
    assert [key for key in told if ending(told[key]) == "ok" and not jobs[key]] == [], figures
    wrong = {
        key: (ending(told[key]), storm.may_end(key)) for key in told if ending(told[key]) not in storm.may_end(key)
    }
    assert wrong == {}, figures
    assert all(execution.attempt == 1 for execution in fake.executions), figures
    assert storm.left_open, figures
    assert figures.keys() >= {"ok", "in_doubt"}, figures
