"""One model call of a run: what its prompt was made of, and what it brought."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from agent_service.core.events import ModelUsage, Provenance
from agent_service.core.phases import Phase
from agent_service.history.history import History
from agent_service.history.items import Item
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


def made_call(moments: Sequence[Moment], number: int) -> Item | None:
    """The newest time that it was made."""
    calls = [one for one in History(moments).of_kind("phase") if one.call == number and one.id != f"call:{number}:plan"]
    return calls[-1] if calls else None


def question_of(made: Item, moments: Sequence[Moment]) -> Question:
    """What its prompt was made of. `moments`: all of its run."""
    state, now = moments[made.about["asked_in"] - 1].after, made.about["asked_at"]
    phase = made.phase or Phase.PLAN
    return Question(state=state, call=made.call or 0, phase=phase, with_plan=state.brief.fused, now=now)


def call_view(made: Item, moments: Sequence[Moment], prompt: PromptText) -> CallView:
    question, reply = question_of(made, moments), made.thought.reply if made.thought else None
    last = moments[made.ended_in - 1] if made.ended_in else None
    said = json.loads(last.entry.event) if last and reply else None
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
        outcome=outcome_of(made, last),
    )


def outcome_of(made: Item, last: Moment | None) -> str:
    if last is None:
        return "there is no reply yet"
    if made.thought or made.error:
        return say(last)
    return f"given up: {'; '.join(map(str, led_to(last)))}"


def _why_it_may_differ(made: Item, version: str) -> str:
    sent = made.about.get("prompt_hash", "")
    if made.thought:
        provenance = made.thought.reply.provenance
        sent = provenance.prompt_hash if provenance else ""
        if not sent:
            return "no prompt was sent: a script answered. This is what a model would have been told"
    if sent and sent != version:
        return f"it was made with other templates ({sent}) than those of this version ({version})"
    return ""
