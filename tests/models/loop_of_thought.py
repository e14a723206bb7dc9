"""A run driven through the core by a real adapter and the fake API, with tools that answer at once.

Nothing else takes part: no store, no bus, no clock but one that counts seconds.
"""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from agent_service import journal
from agent_service.core.decide import decide
from agent_service.core.effects import AskModel, Transition
from agent_service.core.events import (
    CallReserved,
    Event,
    ModelReplied,
    ModelUsage,
    RunStarted,
    ToolReturned,
    WakeAccepted,
)
from agent_service.core.phases import Phase
from agent_service.core.state import Limits, RunState
from agent_service.journal import Run
from agent_service.ports import Estimate, Model, ModelCall, Question
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import ToolResult
from tests.kit.runs import NOON
from tests.models.fake_anthropic import serve

SEARCH = ToolOffer(
    name="search",
    route="search",
    description="Searches the archive of the house, which holds letters, bills and manuals.",
    commands=(
        ToolCommand(
            name="query",
            tier="read",
            description="Find documents that hold all the words. Gives titles, dates and the sentences around them.",
            input_schema={
                "type": "object",
                "properties": {
                    "text": {"type": "string", "description": "The words to look for, separated by blanks."},
                    "most": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
                },
                "required": ["text"],
                "additionalProperties": False,
            },
        ),
    ),
)
RESULT = "The boiler was serviced on {n} May; the pressure valve was replaced and the bill came to {n}2 EUR. " * 12


@dataclass(kw_only=True)
class Thought:
    """One model call: for what, after how many steps, and what it used."""

    phase: Phase
    step: int
    usage: ModelUsage


@dataclass(kw_only=True)
class Course:
    """What a run left: its calls, its journal in bytes per entry, and its state in bytes after each step."""

    thoughts: list[Thought] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    final: RunState | None = None


async def run(*, steps: int, fused: bool, settings: Mapping[str, Any], **limits: Any) -> Course:
    """A run of `steps` steps to its end."""
    async with serve(**settings) as served:
        served.fake.policy = _policy(steps)
        return await _Driver(served.model, fused=fused, limits={"max_steps": steps, **limits}).drive()


class _Driver:
    def __init__(self, model: Model, *, fused: bool, limits: dict[str, Any]) -> None:
        self._model = model
        self._fused = fused
        self._limits = limits
        self._seconds = itertools.count()
        self._run: Run | None = None
        self._call: ModelCall | None = None
        self.course = Course()

    async def drive(self) -> Course:
        transition = self._take(self._wake())
        transition = self._take(RunStarted(at=self._now(), skills=(SEARCH,)))
        while transition.state is not None and not transition.state.final:
            transition = await self._next(transition.state, transition)
        self.course.final = transition.state
        return self.course

    def _wake(self) -> WakeAccepted:
        limits = Limits(deadline_at=NOON + timedelta(days=1), max_attempts_of_run=10_000, **self._limits)
        return WakeAccepted(
            at=self._now(),
            run_id="run_01KAKZ0000000000000000000A",
            wake_id="w",
            goal="List all services of the boiler, with date, replaced parts and cost.",
            limits=limits,
            announce=False,
            fused=self._fused,
        )

    async def _next(self, state: RunState, transition: Transition) -> Transition:
        asked = next((effect for effect in transition.effects if isinstance(effect, AskModel)), None)
        if asked is None:
            return self._take(self._result(state))
        question = Question(state=state, call=asked.call, phase=asked.phase, with_plan=self._fused, now=self._now())
        if state.asking and state.reserve is None:
            self._call = self._model.prepare(question)
            return self._take(self._reserved(question, self._call.estimate))
        return self._take(await self._replied(question))

    def _reserved(self, question: Question, estimate: Estimate | None) -> CallReserved:
        assert estimate is not None
        return CallReserved(at=question.now, call=question.call, model=estimate.model, reserve=estimate.reserve)

    async def _replied(self, question: Question) -> ModelReplied:
        assert self._call is not None
        answer = await self._call.make()
        self.course.thoughts.append(Thought(phase=question.phase, step=question.state.step, usage=answer.usage))
        return ModelReplied(
            at=self._now(),
            call=question.call,
            model=answer.model,
            usage=answer.usage,
            decision=answer.decision,
            plan=answer.plan,
            provenance=answer.provenance,
        )

    def _result(self, state: RunState) -> ToolReturned:
        pending = state.pending
        assert pending is not None, state.reason
        at = self._now()
        told = {
            "run_id": state.run_id,
            "step": pending.step,
            "tool": pending.action.tool,
            "status": "ok",
            "result": {"summary": RESULT.format(n=pending.step)},
            "completed_at": at.isoformat(),
        }
        return ToolReturned(at=at, result=ToolResult.model_validate(told))

    def _take(self, event: Event) -> Transition:
        transition = decide(self._run.state if self._run else None, event)
        assert transition.ignored is None, transition.ignored
        commit = journal.commit_of(self._run, event, transition)
        self._run = Run(state=commit.state, head=commit.entry.hash)
        self.course.entries.append(len(commit.entry.event))
        if isinstance(event, ToolReturned):
            self.course.states.append(len(journal.encode_state(commit.state)))
        return transition

    def _now(self) -> Any:
        return NOON + timedelta(seconds=next(self._seconds))


def _policy(steps: int) -> Any:
    """Plans search after search and ends after `steps`, by what the schema asks for and the prompt says."""

    def decided(body: dict[str, Any]) -> dict[str, Any]:
        properties = body["output_config"]["format"]["schema"]["properties"]
        step = _newest_step("\n".join(block["text"] for block in body["messages"][0]["content"]))
        answers = {
            "framing": FRAMING,
            "reflection": _reflection(step, done=step >= steps),
            "plan": None if step >= steps else _plan(step + 1),
            "memory": [f"The boiler was serviced in May (step:{n})." for n in range(max(1, step - 9), step + 1)],
        }
        if properties.keys() <= answers.keys():
            return {name: answers[name] for name in properties}
        whole: dict[str, Any] = next(
            answer for answer in answers.values() if isinstance(answer, dict) and answer.keys() == properties.keys()
        )
        return whole

    return decided


def _newest_step(text: str) -> int:
    numbers = [int(part.split('"', 1)[0]) for part in text.split('<step number="')[1:]]
    return max(numbers, default=0)


FRAMING = {
    "goal_statement": "A list of all services of the boiler exists, each with its date, its parts and its cost.",
    "definition_of_done": ["All services are found.", "Each has a date.", "Each has its parts and its cost."],
    "constraints": ["Only the archive is searched."],
    "assumptions": ["The archive is complete."],
    "hypothesis": "One search per year finds them all.",
}


def _plan(step: int) -> dict[str, Any]:
    return {
        "rationale": f"The bills of year {2000 + step} have not been looked at, and each year may hold a service.",
        "outline": ["Search year by year.", "Compare the bills with the letters.", "End when no year is left."],
        "tool": "search",
        "command": "query",
        "arguments_json": json.dumps({"text": f"boiler service {2000 + step}", "most": 10}),
        "expected_outcome": "Bills and letters of that year which name the boiler.",
        "risk": "None: it only reads.",
    }


def _reflection(step: int, *, done: bool) -> dict[str, Any]:
    return {
        "summary": f"Year {2000 + step} holds one service of the boiler, with date, part and cost.",
        "met": [{"item": f"d{n}", "evidence": f"step:{step}"} for n in (1, 2, 3)] if done else [],
        "facts": [f"In {2000 + step} the pressure valve was replaced for {step}2 EUR (step:{step})."],
        "verdict": "done" if done else "continue",
        "outcome": "All services are listed." if done else "",
    }
