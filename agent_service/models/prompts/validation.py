"""Decision validation: the decision of a reply, or all its flaws, so that one repair can mend it. Pure.

Parts that the question does not ask for are ignored, as are texts beside the parts. An unusable plan spoils neither the
framing nor the reflection beside it. Unproven claims are refused later, without a repair.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import methodcaller
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from agent_service.core import framing, planning
from agent_service.core.phases import (
    Action,
    Decision,
    Digest,
    Framing,
    Next,
    Phase,
    Plan,
    Unusable,
    Verdict,
    Wait,
)
from agent_service.models.prompts.json_reply import flaw_of, object_in, strictly
from agent_service.models.prompts.replies import (
    ActionReply,
    DecisionReply,
    PlanReply,
    VerificationReply,
    WaitReply,
    reply_to,
)
from agent_service.run.model_calls import MOST_BYTES, flaws_of_arguments
from agent_service.run.ports import ModelQuestion
from schemas.clipping import clipped
from schemas.fields import JsonObject

Read = tuple[Decision, Next | Unusable | None]
Flaws = Iterable[object]

MOST_RAW = 3900
"""Characters of an unusable reply, for the journal and for the repair."""
MOST_FLAWS, LONGEST_FLAW, LONGEST_PLACE = 16, 400, 200
MOST_OF_A_PART = 8
DEEPEST = 50
"""Nesting levels of tool arguments. From 200 on, the journal could not be read back."""

_ARGUMENTS: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(JsonObject)
_SHAPES = {name: TypeAdapter[Any](kind) for name, kind in DecisionReply.__annotations__.items()}
_VERIFICATION = TypeAdapter(VerificationReply)

Part = tuple[Any, tuple[str, ...]]
"""A decision, or all flaws; neither for a null part."""
EMPTY: Part = None, ()


def read(question: ModelQuestion, text: str) -> Read:
    """Decision of a reply to `question` and its plan; Unusable, with all flaws, if invalid."""
    try:
        given = object_in(text)
    except ValueError as error:
        return unusable((str(error),), text), None
    known = reply_to(question.phase).model_fields
    # extra texts of a model, such as `thoughts`, are no parts
    parts = {name: value for name, value in given.items() if name in known or not isinstance(value, str)}
    (decided, flaws), (beside, flaws_beside) = _judged(question, parts)
    strange = [f"{name}: a reply has no such part" for name in parts if name not in known][:MOST_FLAWS]
    if strange or decided is None:
        return unusable((*strange, *flaws, *flaws_beside), text), None
    return decided, unusable(flaws_beside, text) if flaws_beside else beside


def read_cut(text: str, bound: str) -> Unusable:
    """Reply that was cut at its `bound`: the token limit, or the window."""
    length = f"it breaks off after {len(text)} characters" if text else "nothing of it was written down yet"
    cut = f"the reply was cut at {bound}, thinking included: {length}. Think and write less"
    return unusable((cut,), text, cut=True)


def unusable(flaws: Iterable[str], text: str, *, cut: bool = False) -> Unusable:
    told = tuple(_storable(flaw)[:LONGEST_FLAW] for flaw in flaws)
    more = (f"and {len(told) - MOST_FLAWS} more",) if len(told) > MOST_FLAWS else ()
    said = (*told[:MOST_FLAWS], *more)
    return Unusable(reason="; ".join(said), raw=clipped(_storable(text), MOST_RAW), cut=cut, flaws=said)


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _judged(question: ModelQuestion, given: dict[str, Any]) -> tuple[Part, Part]:
    """The decision asked for, and the plan beside it."""
    parts, with_plan = _Parts(question, given), question.with_plan
    match question.phase:
        case Phase.FRAME:
            framed, asked = parts.framing(), parts.ask()
            if framed != EMPTY:
                return framed, parts.next() if with_plan else asked
            return _given_up(parts, "framing") if asked == EMPTY else asked, EMPTY
        case Phase.PLAN:
            then = parts.next()
            return _given_up(parts, "plan, ask and wait") if then == EMPTY else then, EMPTY
        case Phase.COMPACT:
            memory = parts.part("memory", lambda said: Digest(memory=tuple(said)))
            return _null("memory") if memory == EMPTY else memory, EMPTY
        case Phase.VERIFY:
            return _shaped(given, "", _VERIFICATION), EMPTY
    return _reflected(parts, with_plan=with_plan)


def _reflected(parts: "_Parts", *, with_plan: bool) -> tuple[Part, Part]:
    reflection = parts.part("reflection")
    verdict = reflection[0].verdict if reflection[0] else Verdict.CONTINUE
    if verdict is Verdict.ESCALATE and parts.ask()[0]:
        why = "`escalate` ends the run, and `ask` does not: to ask, the verdict is `continue`; to end, `ask` is null"
        return _flawed(f"reflection.verdict: {why}"), EMPTY
    beside = parts.next() if with_plan and verdict is Verdict.CONTINUE else EMPTY
    return _null("reflection") if reflection == EMPTY else reflection, beside


def _given_up(parts: "_Parts", asked: str) -> Part:
    reflection = parts.part("reflection")
    if reflection == EMPTY:
        return _null(asked)
    if reflection[0] and reflection[0].verdict is not Verdict.ESCALATE:
        instead = "`ask` or a reflection that escalates" if asked == "framing" else "a reflection that escalates"
        return _flawed(f"{asked}: null, and without it only {instead} is an answer")
    return reflection


def _flawed(*flaws: str) -> Part:
    return None, flaws


def _null(what: str) -> Part:
    return _flawed(f"{what}: null, and this is what is asked for")


def _shaped(
    raw: Any,
    place: str,
    shape: TypeAdapter[Any],
    decision: Callable[[Any], Any] = methodcaller("decision"),
    flaws_in: Callable[[Any], Flaws] = lambda _: (),
) -> Part:
    try:
        decided = decision(shape.validate_python(raw))
    except ValidationError as error:
        return _flawed(*(_told(flaw, place) for flaw in _errors(error)[:MOST_OF_A_PART]))
    except _Flawed as error:
        return _flawed(*error.flaws)
    flaws = tuple(map(str, flaws_in(decided)))
    return (None, flaws) if flaws else (decided, ())


def _errors(error: ValidationError) -> Sequence[Mapping[str, Any]]:
    return error.errors(include_url=False, include_input=False, include_context=False)


def _told(flaw: Mapping[str, Any], place: str) -> str:
    path = ".".join(map(str, (place, *flaw["loc"]) if place else flaw["loc"]))[:LONGEST_PLACE]
    return f"{path}: {'Input should be an object' if flaw['type'] == 'model_type' else flaw['msg']}"


class _Flawed(Exception):
    def __init__(self, *flaws: str) -> None:
        super().__init__()
        self.flaws = flaws


class _Parts:
    """Parts of a reply, by name."""

    def __init__(self, question: ModelQuestion, given: Mapping[str, Any]) -> None:
        self._state, self._now = question.state, question.now
        self._given = given

    def part(self, name: str, *how: Callable[[Any], Any]) -> Part:
        """`how`: conversion to a decision, and its flaws."""
        raw = self._given.get(name)
        return EMPTY if raw is None else _shaped(raw, name, _SHAPES[name], *how)

    def framing(self) -> Part:
        def flaws(framed: Framing) -> Flaws:
            return (f"framing: {flaw}" for flaw in framing.framing_flaws(self._state, framed))

        return self.part("framing", methodcaller("decision"), flaws)

    def ask(self) -> Part:
        return self.part("ask", methodcaller("decision"), lambda asked: planning.question_flaws(self._state, asked))

    def next(self) -> Part:
        wait = self.part("wait", _wait, lambda wait: planning.wait_flaws(self._state, wait, self._now))
        choices = {"plan": self.part("plan", self._plan), "ask": self.ask(), "wait": wait}
        parts = {name: part for name, part in choices.items() if part != EMPTY}
        flaws = [flaw for _, found in parts.values() for flaw in found]
        if len(parts) > 1:
            flaws.append(f"{' and '.join(parts)} are given: give one of plan, ask and wait, and null for the others")
        return _flawed(*flaws) if flaws else next(iter(parts.values()), EMPTY)

    def _plan(self, said: PlanReply) -> Plan:
        """Raises _Flawed."""
        if not said.actions:
            raise _Flawed("plan.actions: it holds no action; where none can help, `plan` is null")
        actions, flaws = [], []
        for number, one in enumerate(said.actions):
            tool, _, command = re.sub(r"[\s:/]+", ".", one.call.strip().lower().removesuffix("()")).partition(".")
            skill = self._state.brief.skill(tool)
            command = command or (skill.commands[0].name if skill and len(skill.commands) == 1 else "")
            actions.append(Action(tool=tool, command=command, arguments={}))
            try:
                actions[-1] = Action(tool=tool, command=command, arguments=_arguments(one))
                wrong = flaws_of_arguments(self._state.brief, actions[-1])
            except ValidationError as error:
                wrong = (str(_errors(error)[0]["msg"]),)
            except (ValueError, RecursionError) as error:
                wrong = (flaw_of(error),)
            flaws += [f"plan.actions.{number}.arguments_json: {flaw}" for flaw in wrong]
        plan = said.planned(tuple(actions))
        core = [f"plan.actions: {flaw}" for flaw in planning.plan_flaws(self._state, plan)]
        if core or flaws:
            raise _Flawed(*core, *flaws)
        return plan


def _wait(said: WaitReply) -> Wait:
    """Raises _Flawed."""
    try:
        at = datetime.fromisoformat(said.until.strip().removesuffix(" UTC")) if said.until else None
        at = at and (at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        flaw = f"wait.until: {str(said.until)[:64]!r} is no instant such as 2026-11-21T12:00:00Z"
        raise _Flawed(flaw) from None
    return Wait(why=said.why, seconds=said.seconds, until=at)


def _arguments(said: ActionReply) -> dict[str, JsonValue]:
    """Arguments with the long text inserted. Raises ValueError for ambiguous ones."""
    text, long_text = said.arguments_json, said.long_text
    arguments = strictly(text) if text.strip() else {}
    if not isinstance(arguments, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 # the text is wrong, not a type of ours
    if _deeper(arguments, DEEPEST):
        raise ValueError(f"it is nested deeper than {DEEPEST} levels")
    size = len(f"{text}{long_text.text if long_text else ''}".encode("utf-8", "replace"))
    if size > MOST_BYTES:
        raise ValueError(f"it has {size} bytes, and may have {MOST_BYTES}: pass large content as an artifact")
    if long_text is None:
        return _ARGUMENTS.validate_python(arguments)
    if arguments.get(long_text.argument):
        raise ValueError(f"{long_text.argument[:64]!r} is in long_text, too: leave it out here")
    return _ARGUMENTS.validate_python({**arguments, long_text.argument: long_text.text})


def _deeper(value: JsonValue, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(each, levels - 1) for each in inner)
