"""A model that follows a script: for demos, tests and benchmarks.

A script is YAML: a name and rules. The first rule whose `phase` and conditions fit the question answers it, after its
`wait_s`; it has no memory. Texts may hold `$name` for the named groups of the goal's pattern and for `$goal`, `$step`,
`$tool`, `$artifact` and `$result` (of the newest result). A script is checked as a whole when it is read.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from string import Template
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from agent_service.core.events import ModelUsage
from agent_service.core.phases import Ask, Digest, Framing, Phase, Plan, Reflection, Unusable, Verification, Wait
from agent_service.core.state import RunState
from agent_service.errors import ModelError, Remedy
from agent_service.models.settings import ThinkingPhase
from agent_service.run.ports import Answer, ModelCall, Question
from groundwork.service.errors import Misconfigured
from schemas.fields import rule_of

_FREE = ModelUsage(cost_usd=0.0)
NAMES = ("goal", "step", "tool", "artifact", "result")
DECISIONS: dict[str, TypeAdapter[Any]] = {
    "frame": TypeAdapter(Framing),
    "plan": TypeAdapter(Plan),
    "ask": TypeAdapter(Ask),
    "wait": TypeAdapter(Wait),
    "reflect": TypeAdapter(Reflection),
    "verify": TypeAdapter(Verification),
}
NEXT = ("plan", "ask", "wait")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _compiled(given: Any) -> Any:
    try:
        return re.compile(given) if isinstance(given, str) else given
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error


Pattern = Annotated[re.Pattern[str], BeforeValidator(_compiled)]


class Condition(_Strict):
    """All that is given must hold. Patterns are searched for; numbers are compared as they are."""

    goal: Pattern | None = None
    steps: int | None = None
    """How many steps are finished."""
    tool: str | None = None
    """The tool of the newest finished step."""
    status: Literal["ok", "error"] | None = None
    result: Pattern | None = None
    """A pattern in the newest result, as JSON."""
    feedback: Pattern | None = None
    """A pattern in what the model is told of its last decision."""
    person: Pattern | None = None
    """A pattern in what people told the run."""
    repairs: int | None = None
    tries: int | None = None
    reframes: int | None = None


class Fault(_Strict):
    remedy: Remedy
    error_class: str
    message: str
    retry_after_s: float | None = None

    def error(self) -> ModelError:
        return ModelError(self.remedy, self.error_class, self.message, self.retry_after_s)


KEY = "[key]"
ANSWERS = (*DECISIONS, "digest", "unusable", "fault")


class Rule(_Strict):
    """An answer (exactly one field from `frame` on), which may have a `plan`, an `ask` or a `wait` beside it."""

    phase: ThinkingPhase
    when: Condition = Condition()
    wait_s: Annotated[float, Field(ge=0)] = 0.0
    usage: ModelUsage = ModelUsage(cost_usd=0.0)
    frame: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    ask: dict[str, Any] | None = None
    wait: dict[str, Any] | None = None
    reflect: dict[str, Any] | None = None
    verify: dict[str, Any] | None = None
    digest: tuple[str, ...] | None = None
    unusable: str | None = None
    fault: Fault | None = None

    @model_validator(mode="after")
    def _one_answer(self) -> "Rule":
        answers = {name for name in ANSWERS if getattr(self, name) is not None}
        if len(answers) != 1 and answers not in ({first, then} for first in ("frame", "reflect") for then in NEXT):
            beside = "frame and reflect may have a plan, an ask or a wait beside them"
            raise ValueError(f"needs exactly one of {', '.join(ANSWERS)}; {beside}")
        return self


def check_answers(rules: Sequence[Rule]) -> None:
    """Hold each answer against the decision that it should be. Raises ValueError with every flaw and its place."""
    flaws = [
        flaw
        for number, rule in enumerate(rules)
        for name, shape in DECISIONS.items()
        for flaw in _flaws(f"rules.{number}.{name}", shape, getattr(rule, name))
    ]
    if flaws:
        raise ValueError("; ".join(flaws))


def _flaws(place: str, shape: TypeAdapter[Any], answer: dict[str, Any] | None) -> Iterator[str]:
    try:
        if answer is not None:
            known = shape.dump_python(shape.validate_python(answer))
            yield from (f"{place}.{name}: there is no such field" for name in _unknown(answer, known))
    except ValidationError as error:
        for flaw in error.errors(include_url=False):
            yield f"{'.'.join((place, *(str(part) for part in flaw['loc'] if part != KEY)))}: {_told(flaw)}"


def _unknown(given: Any, known: Any) -> Iterator[str]:
    """Fields of `given` that a decision does not have; those of open objects are in `known` too."""
    if isinstance(given, dict) and isinstance(known, dict):
        for name, value in given.items():
            yield from (f"{name}.{inner}" for inner in _unknown(value, known[name])) if name in known else (name,)
    elif isinstance(given, list) and isinstance(known, list | tuple):
        for number, (value, other) in enumerate(zip(given, known, strict=False)):
            yield from (f"{number}.{inner}" for inner in _unknown(value, other))


def _told(flaw: ErrorDetails) -> str:
    if KEY in flaw["loc"] or flaw["type"] == "invalid_key":
        said = "(YAML reads on, off, yes and no as true and false)"
        return f"the key {flaw['input']!r} is no text: put it in quotes {said}"
    if flaw["type"] == "invalid-json-value":
        return f"a {type(flaw['input']).__name__} is nothing that JSON knows: put it in quotes"
    return rule_of(flaw["msg"])


class Script(_Strict):
    """A named list of rules, tried in order."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _answers_are_decisions(self) -> "Script":
        check_answers(self.rules)
        return self


def read_script(path: Path) -> Script:
    """The script in `path`. Raises Misconfigured with the file, the rule and what is wrong with it."""
    try:
        return Script.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Misconfigured(f"script {path} cannot be read: {error}") from error
    except ValidationError as error:
        raise Misconfigured(f"script {path}: {'; '.join(_unusable(error))}") from error


def _unusable(error: ValidationError) -> Iterator[str]:
    found = error.errors(include_url=False)
    for flaw in found:
        place = ".".join(map(str, flaw["loc"][:-1] if flaw["type"] == "invalid_key" else flaw["loc"]))
        if flaw["loc"] != ("rules",) or len(found) == 1:
            yield f"{place}: {_told(flaw)}" if place else _told(flaw)


class ScriptedModel:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._name = f"script:{script.name}"

    def prepare(self, question: Question) -> ModelCall:
        return ModelCall(estimate=None, make=partial(self._decide, question))

    @property
    def verifies(self) -> bool:
        return any(rule.phase == "verify" for rule in self._script.rules)

    async def check(self) -> tuple[str, ...]:
        return ()

    async def _decide(self, question: Question) -> Answer:
        for rule in self._script.rules:
            names = _fit(rule, question)
            if names is not None:
                if rule.wait_s:
                    await asyncio.sleep(rule.wait_s)
                return self._answer(rule, question, names)
        if question.phase is Phase.COMPACT:  # a script need not know of it: nothing that was learned is lost
            return Answer(decision=Digest(memory=question.state.facts), usage=_FREE, model=self._name)
        message = f"{self._name} has no rule for {question.phase} after {len(question.state.completed)} steps"
        raise ModelError("fail", "script_ends", f"{message}: add one")

    def _answer(self, rule: Rule, question: Question, names: dict[str, str]) -> Answer:
        if rule.fault:
            raise rule.fault.error()
        said = [
            DECISIONS[name].validate_python(_filled(answer, names) if "$" in str(answer) else answer)
            for name in ("frame", "reflect", "verify", *NEXT)
            if (answer := getattr(rule, name)) is not None
        ]
        if rule.unusable is not None:
            said = [Unusable(reason=rule.unusable)]
        elif rule.digest is not None:
            said = [Digest(memory=rule.digest)]
        along = said[1] if len(said) > 1 and question.with_plan else None
        return Answer(decision=said[0], plan=along, usage=rule.usage, model=self._name)


def _fit(rule: Rule, question: Question) -> dict[str, str] | None:
    state, goal = question.state, rule.when.goal
    found = goal.search(state.brief.goal) if goal is not None else None
    if rule.phase != question.phase or (goal is not None and not found) or not _holds(rule.when, state):
        return None
    return {
        "goal": state.brief.goal,
        "step": str(state.step),
        "tool": state.completed[-1].tool if state.completed else "",
        "artifact": str(_newest_output(state).get("artifact_path", "")),
        "result": _said(_newest_output(state)),
        **(found.groupdict(default="") if found else {}),
    }


def _holds(when: Condition, state: RunState) -> bool:
    asking, newest = state.asking, state.completed[-1] if state.completed else None
    compared = (
        (when.steps, len(state.completed)),
        (when.tool, newest and newest.tool),
        (when.status, newest and newest.status),
        (when.repairs, asking and asking.repairs),
        (when.tries, asking and asking.tries),
        (when.reframes, state.reframes),
    )
    searched = ((when.result, _newest_json), (when.feedback, _told_to_it), (when.person, _said_by_people))
    differs = [expected for expected, actual in compared if expected is not None and expected != actual]
    missed = [pattern for pattern, text_of in searched if pattern and not pattern.search(text_of(state))]
    return not differs and not missed


def _newest_json(state: RunState) -> str:
    return json.dumps(_newest_output(state))


def _told_to_it(state: RunState) -> str:
    return "\n".join(map(str, (*(state.asking.told if state.asking else ()), *state.refusals)))


def _said_by_people(state: RunState) -> str:
    return "\n".join(state.messages)


def _newest_output(state: RunState) -> dict[str, JsonValue]:
    return state.last_result.output if state.last_result else {}


def _said(output: dict[str, JsonValue]) -> str:
    return str(output.get("summary") or output.get("message") or "")


def _filled(node: Any, names: dict[str, str]) -> Any:
    if isinstance(node, str):
        return Template(node).safe_substitute(names) if "$" in node else node
    if isinstance(node, dict):
        return {key: _filled(value, names) for key, value in node.items()}
    return [_filled(value, names) for value in node] if isinstance(node, list) else node
