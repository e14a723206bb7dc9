"""One model call of a run: the state that it was asked from, and what it brought."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from agent_service.core.events import CallReserved, ModelReplied, ModelUnavailable, ModelUsage, Provenance
from agent_service.core.facts import CallAsked
from agent_service.core.phases import Phase
from agent_service.core.state import RunState
from agent_service.core.waiting import Asking
from agent_service.history.plain import View
from agent_service.history.words import consequences, say
from agent_service.run.moments import Moment
from agent_service.run.ports import PromptText, Question


class PromptPart(View):
    role: Literal["system", "user"]
    text: str


class CallView(View):
    """One model call. `prompt` is what the model was told, made anew from the run as it was then; `prompt_note` says
    why it may differ from what was sent, and is empty where it does not (but for the minute that it names).

    `reply` has the decision as the journal keeps it, and the plan that came along; `outcome` is what came of it.
    """

    run_id: str
    call: int
    phase: Phase
    with_plan: bool
    model: str | None
    asked_at: datetime
    replied_at: datetime | None
    usage: ModelUsage | None
    provenance: Provenance | None
    prompt: tuple[PromptPart, ...]
    prompt_note: str
    reply: dict[str, Any] | None
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """`state` is the run's when its prompt was made, at `at`; `last` is the moment that ended it."""

    state: RunState
    asking: Asking
    at: datetime
    reserved: CallReserved | None = None
    last: Moment | None = None

    @property
    def reply(self) -> ModelReplied | None:
        event = self.last.event if self.last else None
        return event if isinstance(event, ModelReplied) else None

    @property
    def model(self) -> str | None:
        return self.reply.model if self.reply else self.reserved.model if self.reserved else None

    @property
    def prompt_hash(self) -> str | None:
        made = self.reply.provenance if self.reply else self.reserved
        return made.prompt_hash if made else None

    def question(self) -> Question:
        asking, with_plan = self.asking, self.state.brief.fused
        return Question(state=self.state, call=asking.call, phase=asking.phase, with_plan=with_plan, now=self.at)

    def said(self) -> dict[str, Any] | None:
        if self.reply is None or self.last is None:
            return None
        told = json.loads(self.last.entry.event)
        return {"decision": told["decision"], "plan": told["plan"]}

    def outcome(self) -> str:
        if self.last is None:
            return "there is no reply yet"
        if isinstance(self.last.event, ModelReplied | ModelUnavailable):
            return say(self.last)
        return f"given up: {'; '.join(consequences(self.last))}"


def made_call(moments: Iterable[Moment], number: int) -> Made | None:
    made: Made | None = None
    for moment in moments:
        asked = next((fact for fact in moment.all(CallAsked) if fact.call == number), None)
        if asked and moment.after.calling:
            made = Made(state=moment.after, asking=moment.after.calling, at=moment.at)
        elif made and made.last is None:
            made = _went_on(made, moment)
    return made


def _went_on(made: Made, moment: Moment) -> Made:
    event, asking = moment.event, moment.after.asking
    if moment.before and isinstance(event, CallReserved) and moment.after.reserve:
        # the prompt is made before the reserve for it is committed
        return replace(made, state=moment.before, at=moment.at, reserved=event)
    over = asking is None or asking.call != made.asking.call or moment.paused or moment.ended
    return replace(made, last=moment) if over or isinstance(event, ModelUnavailable) else made


def call_view(made: Made, prompt: PromptText) -> CallView:
    question, reply = made.question(), made.reply
    system = (PromptPart(role="system", text=text) for text in prompt.system)
    user = (PromptPart(role="user", text=text) for text in prompt.user)
    return CallView(
        run_id=made.state.run_id,
        call=question.call,
        phase=question.phase,
        with_plan=question.with_plan,
        model=made.model,
        asked_at=made.at,
        replied_at=reply.at if reply else None,
        usage=reply.usage if reply else None,
        provenance=reply.provenance if reply else None,
        prompt=(*system, *user),
        prompt_note=_why_it_may_differ(made, prompt.version),
        reply=made.said(),
        outcome=made.outcome(),
    )


def _why_it_may_differ(made: Made, version: str) -> str:
    if made.reply and made.prompt_hash is None:
        return "no prompt was sent: a script answered. This is what a model would have been told"
    if made.prompt_hash and made.prompt_hash != version:
        return f"it was made with other templates ({made.prompt_hash}) than those of this version ({version})"
    return ""
