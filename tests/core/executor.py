"""Plugins that are played: each request is answered from what its message says alone, as by executors behind a bus.

What they do is a tree of `graphs`. They note what they were asked, and answer in whatever order and as often as a test
wants.
"""

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent_service.core.effects import Effect, Publish
from agent_service.core.events import ToolReturned
from schemas import subjects
from schemas.events import ToolResult
from tests.core.graphs import ONCE, Call, Part, part_of, wire

KEY = re.compile(
    r"agentic:run:(?P<run>[^:]+):step:(?P<step>\d+)(?::task:(?P<task>[a-z0-9_.-]+):(?P<round>\d+))?"
    r":request(?::attempt:(?P<attempt>\d+))?"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it left."""

    key: str
    payload: dict[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        told: dict[str, Any] = self.payload["tool_payload"]
        return told

    @property
    def name(self) -> tuple[str, int]:
        """Task and round, as a run keeps them of its step's own request and of others."""
        return self.payload.get("task", ""), self.payload.get("round", 0)

    @property
    def evidence(self) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = self.arguments.get("evidence", [])
        return told

    @property
    def call(self) -> Call:
        """Which part of the tree is asked, after how many of its rounds: what a plugin sees of it."""
        again = self.payload.get("task", "").rpartition(".")[2] == "again"
        over = len({item["round"] for item in self.evidence}) if again else 0
        return Call(self.arguments["query"], over)

    @property
    def told(self) -> list[tuple[str, str]]:
        """The tasks that it is told of, and what came of each: ok, or the class of the error."""
        return [
            (_last(item["task"]), item["status"] if item["status"] == "ok" else _class(item)) for item in self.evidence
        ]


def _last(task: str) -> str:
    return task.rpartition(".")[2]


def _class(item: dict[str, Any]) -> str:
    return "dependency" if item["error"]["class"] == "dependency" else "error"


class Executor:
    """Plays every plugin of a tree. `open`: what is asked and not answered, the oldest first."""

    def __init__(self, root: Part) -> None:
        self.asked: list[Asked] = []
        self.open: list[Asked] = []
        self.most_open = 0
        self._root = root

    def take(self, effects: Iterable[Effect]) -> None:
        """Note the requests among what a run said. The key says the same as the message."""
        for effect in effects:
            if isinstance(effect, Publish) and effect.subject.startswith(subjects.TOOL_REQUEST):
                asked = Asked(effect.key, json.loads(effect.body)["payload"])
                _same(asked)
                self.asked.append(asked)
                self.open.append(asked)
        self.most_open = max(self.most_open, len(self.open))

    def forget(self, owed: Collection[str]) -> None:
        """Whatever is not waited for any more."""
        self.open = [asked for asked in self.open if asked.key in owed]

    def can_be_lost(self, asked: Asked) -> bool:
        """Whether it is asked for once more, and then answered."""
        first = asked.payload["attempt"] == 1 and not part_of(self._root, asked.call.path).fails
        return first and asked.payload["tool"] != ONCE

    def answer(self, asked: Asked, at: datetime) -> ToolReturned:
        """What comes of a request, however often it is asked for."""
        if asked in self.open:
            self.open.remove(asked)
        return ToolReturned(at=at, result=ToolResult.model_validate(self._result(asked, at)))

    def _result(self, asked: Asked, at: datetime) -> dict[str, Any]:
        echoed = ("run_id", "step", "tool", "attempt", "task", "round")
        names: dict[str, Any] = {name: asked.payload[name] for name in echoed if name in asked.payload}
        return {**names, "completed_at": at, **self._outcome(asked)}

    def _outcome(self, asked: Asked) -> dict[str, Any]:
        call = asked.call
        part = part_of(self._root, call.path)
        if asked.payload["attempt"] <= part.fails:
            return {"status": "error", "error": {"class": "upstream", "message": "not now", "retryable": True}}
        if call.over < len(part.rounds):
            path = f"{call.path}/{call.over + 1}"
            return {"status": "continuation", "result": {"continuation": wire(part.rounds[call.over], path)}}
        if part.ends == "error":
            return {"status": "error", "error": {"class": "no_such_thing", "message": "it is not there"}}
        return {"status": "ok", "result": {"summary": f"all of {call.path or 'the step'}"}}


def _same(asked: Asked) -> None:
    named = KEY.fullmatch(asked.key)
    assert named, asked.key
    says = asked.payload
    assert (named["run"], int(named["step"]), named["task"]) == (says["run_id"], says["step"], says.get("task"))
    assert (int(named["attempt"] or 1), named["round"] and int(named["round"])) == (says["attempt"], says.get("round"))
