"""Model calls: bounded in number, cancellable, and always ending in an event.

A call holds one of the slots for turns while it runs. A call that was abandoned, or that the state does not ask for any
more, brings nothing. Arguments of a planned action are checked against the tool's JSON Schema here, so that a plan that
cannot be carried out is told to the model and never sent.
"""

import asyncio
import json
from datetime import datetime
from typing import Any, Protocol

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from agent_service.core.effects import AskModel
from agent_service.core.events import ModelReplied, ModelUnavailable
from agent_service.core.phases import Decision, Plan, Unusable
from agent_service.core.state import Brief, RunState
from agent_service.errors import ModelError
from agent_service.ports import Answer, Clock, Model, Question

MOST_BYTES = 128 * 1024
"""Of one reply: a request has to fit into a message of the bus (1 MiB), and the journal is kept for ever."""

_DECISIONS: TypeAdapter[tuple[Decision, Plan | Unusable | None]] = TypeAdapter(tuple[Decision, Plan | Unusable | None])

Reply = ModelReplied | ModelUnavailable


class ArgumentCheck(Protocol):
    """Says what is wrong with a plan's arguments by the tool's own schema; nothing when they are valid."""

    def flaws(self, brief: Brief, plan: Plan) -> tuple[str, ...]: ...


class Thinker:
    """Asks the model and turns what comes back into events."""

    def __init__(self, model: Model, arguments: ArgumentCheck, clock: Clock, *, slots: int) -> None:
        self._model = model
        self._arguments = arguments
        self._clock = clock
        self._slots = asyncio.Semaphore(slots)
        self._wanted: set[tuple[str, int]] = set()
        self._calls: dict[tuple[str, int], asyncio.Task[Any]] = {}

    async def think(self, state: RunState, effect: AskModel) -> Reply | None:
        """Make the call, or return None when it is moot or abandoned."""
        key = (state.run_id, effect.call)
        if state.asking is None or state.asking.call != effect.call or key in self._wanted:
            return None
        self._wanted.add(key)
        try:
            async with self._slots:
                return await self._ask(key, state, effect) if key in self._wanted else None
        finally:
            self._wanted.discard(key)

    def abandon(self, run_id: str, call: int) -> None:
        """Stop waiting for a call, or for a slot to make it."""
        self._wanted.discard((run_id, call))
        task = self._calls.get((run_id, call))
        if task is not None:
            task.cancel()

    async def _ask(self, key: tuple[str, int], state: RunState, effect: AskModel) -> Reply | None:
        question = Question(
            state=state, call=effect.call, phase=effect.phase, with_plan=state.brief.fused, now=self._clock.now()
        )
        task = self._calls[key] = _this_task()
        try:
            answer = await self._model.decide(question)
        except ModelError as error:
            return _unavailable(error, effect.call, self._clock.now())
        except asyncio.CancelledError:
            # Abandoned: only the call ends, not the turn that made it. A shutdown cancels the turn.
            if key in self._wanted or task.uncancel() > 0:
                raise
            return None
        finally:
            del self._calls[key]
        return self._event(answer, state.brief, effect.call)

    def _event(self, answer: Answer, brief: Brief, call: int) -> ModelReplied:
        flaw = _unstorable(answer)
        decision = Unusable(reason=flaw) if flaw else answer.decision
        return ModelReplied(
            at=self._clock.now(),
            call=call,
            model=answer.model,
            usage=answer.usage,
            decision=self._checked(brief, decision) if isinstance(decision, Plan) else decision,
            plan=self._checked(brief, answer.plan) if isinstance(answer.plan, Plan) and not flaw else answer.plan,
        )

    def _checked(self, brief: Brief, plan: Plan) -> Plan | Unusable:
        flaws = self._arguments.flaws(brief, plan)
        return Unusable(reason=f"arguments of {plan.action.tool}: {'; '.join(flaws)}") if flaws else plan


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a model is asked from within a task")
    return task


def _unavailable(error: ModelError, call: int, at: datetime) -> ModelUnavailable:
    return ModelUnavailable(
        at=at,
        call=call,
        remedy=error.remedy,
        error_class=error.error_class,
        message=str(error).encode("utf-8", "replace").decode().replace("\0", "\ufffd"),
        retry_after_s=error.retry_after_s,
    )


def _unstorable(answer: Answer) -> str | None:
    """What keeps the answer from being stored and sent as JSON, if anything."""
    try:
        size = len(text := _DECISIONS.dump_json((answer.decision, answer.plan)))
        for plan in (answer.decision, answer.plan):
            if isinstance(plan, Plan):
                json.dumps(plan.action.arguments, allow_nan=False)
    except (PydanticSerializationError, ValueError) as error:
        return f"the reply is not JSON in UTF-8: {str(error)[:200]}"
    if b"\\u0000" in text:
        return "the reply contains a NUL character"
    if size > MOST_BYTES:
        return f"the reply has {size} bytes, more than {MOST_BYTES}: pass large content as an artifact"
    return None
