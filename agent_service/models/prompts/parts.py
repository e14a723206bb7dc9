"""The parts of a reply: what each decides, or everything that is wrong with it. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError

from agent_service.core.model import framing, planning
from agent_service.core.phases import (
    Action,
    Ask,
    Digest,
    Framing,
    Next,
    Plan,
    Proof,
    Reflection,
    Verification,
    Wait,
)
from agent_service.core.state import RunState
from agent_service.models.prompts.reading import flaw_of, strictly
from agent_service.models.prompts.replies import (
    AskReply,
    FramingReply,
    PlanReply,
    ReflectionReply,
    VerificationReply,
    WaitReply,
)
from agent_service.run.checks.arguments import MOST_BYTES, flaws_of_arguments
from schemas.fields import JsonObject, Text
from schemas.values import dataclass

T = TypeVar("T", covariant=True)
S = TypeVar("S")

DEEPEST = 50
"""Levels of nesting in the arguments of a tool. From 200 on, what was journaled could not be read again."""
MOST_FLAWS, LONGEST_PLACE = 8, 200

_FRAMING, _REFLECTION, _PLAN = TypeAdapter(FramingReply), TypeAdapter(ReflectionReply), TypeAdapter(PlanReply)
_ASK, _WAIT, _VERIFICATION = TypeAdapter(AskReply), TypeAdapter(WaitReply), TypeAdapter(VerificationReply)
_MEMORY: TypeAdapter[list[str]] = TypeAdapter(list[Text])
_ARGUMENTS: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(JsonObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[T]):
    """A decision, or all flaws; neither for a part that is null."""

    decided: T | None = None
    flaws: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return self.decided is None and not self.flaws


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A reply in its parts, `given` by their names."""

    given: Mapping[str, Any]
    state: RunState
    now: datetime

    def framing(self) -> Part[Framing]:
        raw = self.given.get("framing")
        flaws = tuple(_framing_flaws(raw, self.state))
        return self._part("framing", _FRAMING, lambda said: said.decision(), flaws)

    def reflection(self) -> Part[Reflection]:
        return self._part("reflection", _REFLECTION, lambda said: said.decision())

    def memory(self) -> Part[Digest]:
        return self._part("memory", _MEMORY, lambda said: Digest(memory=tuple(said)))

    def next(self) -> Part[Next]:
        parts = {name: part for name, part in self._choices().items() if not part.empty}
        flaws = [flaw for part in parts.values() for flaw in part.flaws]
        if len(parts) > 1:
            flaws.append(f"{' and '.join(parts)} are given: give one of plan, ask and wait, and null for the others")
        decided = next((part.decided for part in parts.values()), None)
        return Part(flaws=tuple(flaws)) if flaws else Part(decided=decided)

    def _choices(self) -> dict[str, Part[Next]]:
        return {"plan": self._plan(), "ask": self.ask(), "wait": self._wait()}

    def ask(self) -> Part[Next]:
        return self._part("ask", _ASK, lambda said: said.decision(), _ask_flaws(self.given.get("ask"), self.state))

    def _plan(self) -> Part[Next]:
        actions, flaws = _actions(self.given.get("plan"), self.state)
        return self._part("plan", _PLAN, lambda said: said.decision(actions), flaws)

    def _wait(self) -> Part[Next]:
        wait, flaws = _waited(self.given.get("wait"), self.state, self.now)
        return self._part("wait", _WAIT, lambda _: wait, flaws)

    def _part(
        self, name: str, shape: TypeAdapter[S], decision: Callable[[S], T | None], flaws: Sequence[str] = ()
    ) -> Part[T]:
        raw = self.given.get(name)
        if raw is None:
            return Part()
        return _shaped(raw, name, shape, decision, flaws)


def verification_in(value: Any) -> Part[Verification]:
    return _shaped(value, "", _VERIFICATION, lambda said: said.decision())


def _shaped(
    raw: Any,
    place: str,
    shape: TypeAdapter[S],
    decision: Callable[[S], T | None],
    flaws: Sequence[str] = (),
) -> Part[T]:
    try:
        said = shape.validate_python(raw)
    except ValidationError as error:
        return Part(flaws=(*_flaws_of(error, place), *flaws))
    return Part(flaws=tuple(flaws)) if flaws else Part(decided=decision(said))


def _flaws_of(error: ValidationError, place: str) -> Iterator[str]:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    for flaw in found[:MOST_FLAWS]:
        path = ".".join(map(str, (place, *flaw["loc"]) if place else flaw["loc"]))[:LONGEST_PLACE]
        yield f"{path}: {'Input should be an object' if flaw['type'] == 'model_type' else flaw['msg']}"


def _framing_flaws(raw: Any, state: RunState) -> Iterator[str]:
    items = raw.get("definition_of_done") if isinstance(raw, dict) else None
    if not isinstance(items, list):
        return
    said = [item if isinstance(item, dict) else {} for item in items]
    framed = Framing(
        goal_statement=_said(raw.get("goal_statement")),
        definition_of_done=tuple(_said(item.get("text")) for item in said),
        proofs=tuple(_proof(item) for item in said),
    )
    flaws = (*framing.flaws_of_framing(state.brief, framed), *framing.flaws_of_reframing(state, framed))
    yield from (f"framing: {flaw}" for flaw in flaws)


def _proof(item: dict[str, Any]) -> Proof:
    return Proof(kind="value" if item.get("proof") == "value" else "step", tool=_said(item.get("tool", "")))


def _said(value: Any) -> str:
    return value if isinstance(value, str) else "?"


def _actions(raw: Any, state: RunState) -> tuple[tuple[Action, ...], tuple[str, ...]]:
    listed = raw.get("actions") if isinstance(raw, dict) else None
    if not isinstance(listed, list):
        return (), ()
    if not listed:
        return (), ("plan.actions: it holds no action; where none can help, `plan` is null",)
    found = [_action(each, f"plan.actions.{n}", state) for n, each in enumerate(listed) if isinstance(each, dict)]
    actions = tuple(action for action, _ in found)
    called = [action for action in actions if action.tool]
    core = planning.flaws_of_plan(state, Plan(action=called[0], also=tuple(called[1:]))) if called else ()
    return actions, (*(f"plan.actions: {flaw}" for flaw in core), *(flaw for _, wrong in found for flaw in wrong))


def _action(said: Mapping[str, Any], place: str, state: RunState) -> tuple[Action, tuple[str, ...]]:
    call = said.get("call")
    tool, _, command = call.partition(".") if isinstance(call, str) else ("", "", "")
    if "arguments_json" not in said:
        return Action(tool=tool, command=command, arguments={}), ()
    try:
        action = Action(tool=tool, command=command, arguments=_arguments(said))
    except (ValueError, RecursionError) as error:
        return Action(tool=tool, command=command, arguments={}), (f"{place}.arguments_json: {_told(error)}",)
    return action, tuple(f"{place}.arguments_json: {flaw}" for flaw in flaws_of_arguments(state.brief, action))


def _arguments(said: Mapping[str, Any]) -> dict[str, JsonValue]:
    """The arguments, with the long text in its place. Raises ValueError for what others could read otherwise."""
    text, long_text = said["arguments_json"], said.get("long_text")
    arguments = strictly(text) if isinstance(text, str) and text.strip() else text or {}
    if not isinstance(arguments, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 # the text is wrong, not a type of ours
    if _deeper(arguments, DEEPEST):
        raise ValueError(f"it is nested deeper than {DEEPEST} levels")
    size = len(f"{text}{long_text}".encode("utf-8", "replace"))
    if size > MOST_BYTES:
        raise ValueError(f"it has {size} bytes, and may have {MOST_BYTES}: pass large content as an artifact")
    if not isinstance(long_text, dict):
        return _ARGUMENTS.validate_python(arguments)
    name = _said(long_text.get("argument"))
    if arguments.get(name):
        raise ValueError(f"{name[:64]!r} is in long_text, too: leave it out here")
    return _ARGUMENTS.validate_python({**arguments, name: _said(long_text.get("text"))})


def _told(error: ValueError | RecursionError) -> str:
    if isinstance(error, ValidationError):
        return str(error.errors(include_url=False, include_input=False, include_context=False)[0]["msg"])
    return flaw_of(error)


def _deeper(value: JsonValue, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(each, levels - 1) for each in inner)


def _ask_flaws(raw: Any, state: RunState) -> tuple[str, ...]:
    asked = raw.get("question") if isinstance(raw, dict) else None
    if not isinstance(asked, str):
        return ()
    choices = raw["choices"] if isinstance(raw.get("choices"), list) else []
    question = Ask(question=asked, choices=tuple(filter(None, map(_said, choices))))
    return tuple(map(str, planning.flaws_of_question(state, question)))


def _waited(raw: Any, state: RunState, now: datetime) -> tuple[Wait | None, tuple[str, ...]]:
    said = raw if isinstance(raw, dict) else {}
    seconds, until = said.get("seconds"), said.get("until")
    try:
        at = _instant(until) if isinstance(until, str) else None
    except (ValueError, OverflowError):
        return None, (f"wait.until: {str(until)[:64]!r} is no instant such as 2026-11-21T12:00:00Z",)
    wait = Wait(why=_said(said.get("why")), seconds=seconds if isinstance(seconds, int | float) else None, until=at)
    return wait, tuple(map(str, planning.flaws_of_wait(state, wait, now)))


def _instant(text: str) -> datetime:
    at = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
