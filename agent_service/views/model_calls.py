"""One model call of a run: the state that it was asked from, and what it brought."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from agent_service.core.events import CallReserved, ModelReplied, ModelUnavailable, ModelUsage, Provenance
from agent_service.core.facts import CallAsked
from agent_service.core.phases import Phase
from agent_service.history.plain import View
from agent_service.history.words import led_to, say
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
    """`question`: what its prompt was made of; `last` is the moment that ended it."""

    question: Question
    reserved: CallReserved | None = None
    last: Moment | None = None

    @property
    def reply(self) -> ModelReplied | None:
        event = self.last.event if self.last else None
        return event if isinstance(event, ModelReplied) else None

    @property
    def model(self) -> str | None:
        made = self.reply or self.reserved
        return made.model if made else None

    @property
    def outcome(self) -> str:
        if self.last is None:
            return "there is no reply yet"
        if isinstance(self.last.event, ModelReplied | ModelUnavailable):
            return say(self.last)
        return f"given up: {'; '.join(map(str, led_to(self.last)))}"


def made_call(moments: Iterable[Moment], number: int) -> Made | None:
    made: Made | None = None
    for moment in moments:
        run, asking = moment.after, moment.after.asking
        if run.calling and any(fact.call == number for fact in moment.all(CallAsked)):
            fused, phase = run.brief.fused, run.calling.phase
            made = Made(question=Question(state=run, call=number, phase=phase, with_plan=fused, now=moment.at))
        elif made is None or made.last:
            continue
        elif moment.before and isinstance(moment.event, CallReserved) and run.reserve:
            # the prompt is made before the reserve for it is committed
            question = replace(made.question, state=moment.before, now=moment.at)
            made = replace(made, question=question, reserved=moment.event)
        elif moment.paused or moment.ended or asking is None or asking.call != number or _brought_nothing(moment):
            made = replace(made, last=moment)
    return made


def _brought_nothing(moment: Moment) -> bool:
    return isinstance(moment.event, ModelUnavailable)


def call_view(made: Made, prompt: PromptText) -> CallView:
    question, reply = made.question, made.reply
    said = json.loads(made.last.entry.event) if made.last and reply else None
    parts = [*(("system", text) for text in prompt.system), *(("user", text) for text in prompt.user)]
    return CallView(
        run_id=question.state.run_id,
        call=question.call,
        phase=question.phase,
        with_plan=question.with_plan,
        model=made.model,
        asked_at=question.now,
        replied_at=reply.at if reply else None,
        usage=reply.usage if reply else None,
        provenance=reply.provenance if reply else None,
        prompt=tuple(PromptPart.model_validate({"role": role, "text": text}) for role, text in parts),
        prompt_note=_why_it_may_differ(made, prompt.version),
        reply={"decision": said["decision"], "plan": said["plan"]} if said else None,
        outcome=made.outcome,
    )


def _why_it_may_differ(made: Made, version: str) -> str:
    sent = made.reply.provenance if made.reply else made.reserved
    if made.reply and (sent is None or sent.prompt_hash is None):
        return "no prompt was sent: a script answered. This is what a model would have been told"
    if sent and sent.prompt_hash and sent.prompt_hash != version:
        return f"it was made with other templates ({sent.prompt_hash}) than those of this version ({version})"
    return ""
