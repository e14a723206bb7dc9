"""Decision validation: the decision of a reply, or all its flaws, so that one repair can mend it. Pure.

A reply is one JSON object, bare or in a fence: words around it may say that it is not meant. Parts that the question
does not ask for are ignored, as are texts beside the parts. An unusable plan spoils neither the framing nor the
reflection beside it. Unproven claims are refused later, without a repair. `run` refuses what cannot be stored.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import JsonValue, ValidationError

from agent_service.core import phases
from agent_service.core.framing import framing_flaws
from agent_service.core.phases import Phase, Verdict
from agent_service.core.planning import plan_flaws, question_flaws, wait_flaws
from agent_service.models.prompts.replies import ActionReply, PlanReply, reply_to
from agent_service.run.model_calls import flaws_of_arguments
from agent_service.run.ports import ModelQuestion
from groundwork.service import strict
from schemas.bounded import clipped, storable
from schemas.fields import plain_rule
from schemas.values import replace

Read = tuple[phases.Decision, phases.Next | phases.Unusable | None]

MOST_RAW = 3900
"""Characters of an unusable reply, for the journal and for the repair."""
MOST_FLAWS, LONGEST_FLAW, LONGEST_PLACE = 16, 400, 200
MOST_OF_A_PART = 8
SHOWN_AROUND = 30
"""Characters before and behind the place where a reply breaks."""

_THOUGHT = re.compile(r"(?!\s*[{`]).*?</think>", re.DOTALL)
"""The opening tag is often part of the prompt."""
_FENCED = re.compile(r"```[a-z0-9]*\s*(\{.*\})\s*```", re.DOTALL | re.IGNORECASE)


def read(question: ModelQuestion, text: str) -> Read:
    """Decision of a reply to `question` and its plan; Unusable, with all flaws, if invalid."""
    try:
        given = object_in(text)
    except ValueError as error:
        return unusable((f"the reply {error}: it has to be one JSON object, with nothing around it",), text), None
    known = reply_to(question.phase).model_fields
    # extra texts of a model, such as `thoughts`, are no parts
    named = {name: value for name, value in given.items() if name in known or not isinstance(value, str)}
    strange = [f"{name}: a reply has no such part" for name in named if name not in known][:MOST_FLAWS]
    parts, beside = _Parts(question, named), _Parts(question, named)
    decided, plan = _decided(question, parts, beside)
    if strange or parts.flaws:
        return unusable((*strange, *parts.flaws, *beside.flaws), text), None
    return decided, unusable(beside.flaws, text) if beside.flaws else plan


def object_in(text: str) -> dict[str, JsonValue]:
    """JSON object of a reply. Raises ValueError with the flaw."""
    said = (_THOUGHT.sub("", text, count=1) if _THOUGHT.match(text) else text).strip()
    fenced = _FENCED.fullmatch(said)
    return _object(fenced[1] if fenced else said)


def _object(text: str) -> dict[str, JsonValue]:
    try:
        found = strict.read(text.encode(errors="surrogatepass"), bare_breaks=True)
    except ValueError as error:
        broken = error.__cause__
        if not isinstance(broken, json.JSONDecodeError):
            raise
        near = broken.doc[max(0, broken.pos - SHOWN_AROUND) : broken.pos + SHOWN_AROUND]
        raise ValueError(f"{error}: {broken.msg}, near {near!r}") from error
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")  # noqa: TRY004 # the text is wrong, not a type of ours
    return found


def read_cut(text: str, bound: str) -> phases.Unusable:
    """Reply that was cut at its `bound`: the token limit, or the window."""
    length = f"it breaks off after {len(text)} characters" if text else "nothing of it was written down yet"
    cut = f"the reply was cut at {bound}, thinking included: {length}. Think and write less"
    return unusable((cut,), text, cut=True)


def unusable(flaws: Iterable[str], text: str, *, cut: bool = False) -> phases.Unusable:
    texts = tuple(storable(flaw)[:LONGEST_FLAW] for flaw in flaws)
    more = (f"and {len(texts) - MOST_FLAWS} more",) if len(texts) > MOST_FLAWS else ()
    said = (*texts[:MOST_FLAWS], *more)
    return phases.Unusable(reason="; ".join(said), raw=clipped(storable(text), MOST_RAW), cut=cut, flaws=said)


def _decided(question: ModelQuestion, parts: "_Parts", beside: "_Parts") -> tuple[Any, Any]:
    """The decision asked for, and the plan beside it."""
    match question.phase:
        case Phase.FRAME if parts.has("framing"):
            return parts.part("framing"), beside.next() if question.with_plan else beside.part("ask")
        case Phase.FRAME:
            return parts.part("ask") if parts.has("ask") else parts.given_up("framing and ask"), None
        case Phase.PLAN:
            return parts.next() if parts.has("plan", "ask", "wait") else parts.given_up("plan, ask and wait"), None
        case Phase.COMPACT:
            return parts.needed("memory"), None
        case Phase.VERIFY:
            return parts.whole(), None
    reflection = parts.needed("reflection")
    verdict = reflection.verdict if reflection else Verdict.CONTINUE
    if verdict is Verdict.ESCALATE and parts.has("ask"):
        why = "`escalate` ends the run, and `ask` does not: to ask, the verdict is `continue`; to end, `ask` is null"
        parts.flaws.append(f"reflection.verdict: {why}")
    return reflection, beside.next() if question.with_plan and verdict is Verdict.CONTINUE else None


class _Parts:
    """Parts of a reply, by name, and the flaws of those that were read. A part that is null or flawed is None."""

    def __init__(self, question: ModelQuestion, given: Mapping[str, Any]) -> None:
        self._question, self._state = question, question.state
        self._given = given
        self.flaws = list[str]()

    def has(self, *names: str) -> bool:
        return any(self._given.get(name) is not None for name in names)

    def whole(self) -> Any:
        return (said := self._read(self._given)) and said.decision()

    def part(self, name: str) -> Any:
        before, said = len(self.flaws), getattr(self._read({name: self._given.get(name)}), name, None)
        if said is None:
            return None
        match name:
            case "plan":
                decision: Any = self._plan(said)
            case "memory":
                decision = phases.Digest(memory=tuple(said))
            case _:
                decision = said.decision()
        self.flaws += [f"{name}: {flaw}" for flaw in self._refused(decision)]
        return decision if len(self.flaws) == before else None

    def needed(self, name: str) -> Any:
        if not self.has(name):
            self.flaws.append(f"{name}: null, and this is what is asked for")
        return self.part(name)

    def given_up(self, asked: str) -> Any:
        reflection = self.needed("reflection") if self.has("reflection") else None
        if reflection is None or reflection.verdict is not Verdict.ESCALATE:
            self.flaws.append(f"{asked}: null, and without it only a reflection that escalates is an answer")
        return reflection

    def next(self) -> Any:
        parts = {name: self.part(name) for name in ("plan", "ask", "wait") if self.has(name)}
        if len(parts) > 1:
            self.flaws.append(
                f"{' and '.join(parts)} are given: give one of plan, ask and wait, and null for the others"
            )
        return next(iter(parts.values()), None)

    def _read(self, given: Mapping[str, Any]) -> Any:
        try:
            return reply_to(self._question.phase).model_validate(given)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)[:MOST_OF_A_PART]
            places = [".".join(map(str, flaw["loc"]))[:LONGEST_PLACE] for flaw in found]
            self.flaws += [f"{place}: {plain_rule(flaw['msg'])}" for place, flaw in zip(places, found, strict=True)]
            return None

    def _refused(self, decision: phases.Decision | None) -> Iterable[object]:
        """Flaws of the decision's content, for which the run would refuse it."""
        match decision:
            case phases.Framing():
                return framing_flaws(self._state, decision)
            case phases.Plan():
                return plan_flaws(self._state, decision)
            case phases.AskPerson():
                return question_flaws(self._state, decision)
            case phases.Wait():
                return wait_flaws(self._state, decision, self._question.now)
        return ()

    def _plan(self, said: PlanReply) -> phases.Plan | None:
        if not said.actions:
            self.flaws.append("plan.actions: it holds no action; where none can help, `plan` is null")
            return None
        actions = []
        for number, one in enumerate(said.actions):
            tool, _, command = re.sub(r"[\s:/]+", ".", one.call.strip().lower().removesuffix("()")).partition(".")
            skill = self._state.brief.skill(tool)
            command = command or (skill.commands[0].name if skill and len(skill.commands) == 1 else "")
            action = phases.Action(tool=tool, command=command, arguments={})
            try:
                action = replace(action, arguments=_arguments(one))
                wrong = flaws_of_arguments(self._state.brief, action)
            except ValueError as error:
                wrong = (str(error),)
            actions.append(action)
            self.flaws += [f"plan.actions.{number}.arguments_json: {flaw}" for flaw in wrong]
        return said.planned(tuple(actions))


def _arguments(said: ActionReply) -> dict[str, JsonValue]:
    """Arguments with the long text inserted. Raises ValueError for ambiguous ones."""
    arguments, long_text = _object(said.arguments_json.strip() or "{}"), said.long_text
    if long_text is None:
        return arguments
    if arguments.get(long_text.argument):
        raise ValueError(f"{long_text.argument[:64]!r} is in long_text, too: leave it out here")
    return {**arguments, long_text.argument: long_text.text}
