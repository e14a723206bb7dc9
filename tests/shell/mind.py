"""A scripted mind: plans appends and is done. It may cost something, and be away, slow or struck by a crash."""

import asyncio
from collections import Counter
from functools import partial
from typing import Any

from agent_service.core.events import CallReserved, ModelUsage
from agent_service.core.phases import Action, Framing, Met, Phase, Plan, Reflection, Verdict
from agent_service.core.state import RunState
from agent_service.core.waiting import Reserve
from agent_service.run.ports import Answer, Archive, Estimate, ModelCall, Question
from tests.kit.crashes import Points

USAGE = ModelUsage(input_tokens=10, output_tokens=5, cost_usd=0.001)
"""Of each call."""


class Mind:
    """Plans `steps` appends and is done. Counts its calls, by run and number. Fills the port Model."""

    def __init__(self, faults: Points, store: Archive, *, steps: int = 2, reserve: Reserve | None = None) -> None:
        self.reserve = reserve
        """What a call may spend at most; None for a mind that costs nothing."""
        self.calls: Counter[tuple[str, int]] = Counter()
        self.opens = False
        """Whether a framing brings its plan along."""
        self.side_by_side = 1
        """How many actions each of its plans has."""
        self.outage: Exception | None = None
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.argument: Any = None
        self.unreserved: list[tuple[str, int]] = []
        """Calls that began before what they may spend was set aside in the store: there should be none."""
        self._faults = faults
        self._store = store
        self.steps = steps

    def prepare(self, question: Question) -> ModelCall:
        return ModelCall(estimate=self._estimate(), make=partial(self._decide, question))

    def _estimate(self) -> Estimate | None:
        if self.reserve is None:
            return None
        return Estimate(model="mind", reserve=self.reserve, prompt_hash="prompt", schema_hash="schema")

    async def _decide(self, question: Question) -> Answer:
        self.calls[question.state.run_id, question.call] += 1
        await self._look_for_its_reserve(question)
        self.asked.set()
        await self.may_answer.wait()
        self._faults.point(f"during {question.phase}")
        if self.outage:
            raise self.outage
        return self._answer(question.state, question.phase)

    async def _look_for_its_reserve(self, question: Question) -> None:
        key, entries = (question.state.run_id, question.call), await self._store.entries(question.state.run_id)
        events = [entry.decoded() for entry in entries]
        set_aside = sum(isinstance(event, CallReserved) and event.call == question.call for event in events)
        if self.reserve and set_aside < self.calls[key]:
            self.unreserved.append(key)

    def _answer(self, state: RunState, phase: Phase) -> Answer:
        plan = self._plan(state)
        if phase is Phase.FRAME:
            framing = Framing(goal_statement="Append.", definition_of_done=("one", "two", "three"))
            return Answer(decision=framing, plan=plan if self.opens else None, usage=USAGE, model="mind")
        if phase is Phase.PLAN:
            return Answer(decision=plan, usage=USAGE, model="mind")
        done = len(state.completed) >= self.steps
        met = tuple(Met(item=i.id, evidence=f"step:{state.step}") for i in state.done_items) if done else ()
        verdict = Verdict.DONE if done else Verdict.CONTINUE
        reflection = Reflection(verdict=verdict, summary="seen", met=met)
        return Answer(decision=reflection, plan=None if done else plan, usage=USAGE, model="mind")

    def _plan(self, state: RunState) -> Plan:
        (tool,) = state.brief.skills
        numbers = range(state.step + 1, state.step + 1 + self.side_by_side)
        actions = [Action(tool=tool.name, command="handle", arguments={"n": self.argument or n}) for n in numbers]
        return Plan(action=actions[0], also=tuple(actions[1:]))
