"""Model that follows a script: for demos, tests and benchmarks.

A script is YAML: a name and rules. The first rule whose `phase` and conditions match answers, after its `wait_s`; it
has no memory. Texts may hold `$name` for named groups of the goal's pattern and for `$goal`, `$step`, `$tool`,
`$artifact` and `$result` (of the newest result). A script is checked as a whole when it is read.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import cache, cached_property, partial
from pathlib import Path
from string import Template
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from agent_service.core import phases
from agent_service.core.events import ModelReplied, ModelUsage
from agent_service.core.phases import Phase, Verdict
from agent_service.core.state import RunState
from agent_service.errors import ModelError, Remedy
from agent_service.models.settings import ModelSettings, ThinkingPhase
from agent_service.run.ports import ModelCall, ModelQuestion
from groundwork.service.errors import Misconfigured
from groundwork.service.strict import NotYaml, parse
from schemas.fields import Closed, validation_flaws

_FREE = ModelUsage(cost_usd=0.0)
NAMES = ("goal", "step", "tool", "artifact", "result")
NEXT = ("plan", "ask", "wait")
SERVE: dict[str, tuple[str, ...]] = {
    Phase.FRAME: ("frame", "ask", "reflect"),
    Phase.PLAN: (*NEXT, "reflect"),
    Phase.REFLECT: ("reflect", "digest"),
    Phase.COMPACT: ("digest", "reflect"),
    Phase.VERIFY: ("verify",),
}
"""Answers allowed in each phase, besides `unusable` and `fault`. Before there is a next action a reflection can only
escalate.
"""


Pattern = re.Pattern[str]


_SEEN: dict[str, Callable[[RunState], Any]] = {
    "goal": lambda state: state.brief.goal,
    "steps": lambda state: len(state.completed),
    "tool": lambda state: state.completed[-1].tool if state.completed else None,
    "status": lambda state: state.completed[-1].status if state.completed else None,
    "result": lambda state: json.dumps(state.last_output or {}, ensure_ascii=False),
    "feedback": lambda state: "\n".join(
        map(str, (*(state.open_call.remarks if state.open_call else ()), *state.refusals))
    ),
    "person": lambda state: "\n".join(state.messages),
    "repairs": lambda state: state.open_call and state.open_call.repairs,
    "tries": lambda state: state.open_call and state.open_call.tries,
    "reframes": lambda state: state.reframes,
}


class Condition(Closed):
    """All given conditions must hold. Patterns are searched; numbers are compared. `steps`: finished ones; `tool`,
    `status`, `result` (as JSON): of the newest; `feedback`: on the model's last decision; `person`: people's messages.
    """

    goal: Pattern | None = None
    steps: int | None = None
    tool: str | None = None
    status: Literal["ok", "error"] | None = None
    result: Pattern | None = None
    feedback: Pattern | None = None
    person: Pattern | None = None
    repairs: int | None = None
    tries: int | None = None
    reframes: int | None = None

    def holds(self, state: RunState) -> bool:
        for name in self.model_fields_set:
            wanted, seen = getattr(self, name), _SEEN[name](state)
            if not (wanted.search(seen) if isinstance(wanted, re.Pattern) else wanted in (None, seen)):
                return False
        return True


class Fault(Closed):
    remedy: Remedy
    error_class: str
    message: str
    retry_after_s: float | None = None


ANSWERS = ("frame", "reflect", "verify", *NEXT, "digest", "unusable", "fault")


class Rule(Closed):
    """Answer (exactly one field from `frame` on), with an optional `plan`, `ask` or `wait` beside it."""

    phase: ThinkingPhase
    when: Condition = Condition()
    wait_s: Annotated[float, Field(ge=0)] = 0.0
    usage: ModelUsage = _FREE
    frame: phases.Framing | None = None
    plan: phases.Plan | None = None
    ask: phases.AskPerson | None = None
    wait: phases.Wait | None = None
    reflect: phases.Reflection | None = None
    verify: phases.Verification | None = None
    digest: Annotated[phases.Digest, BeforeValidator(lambda memory: {"memory": memory})] | None = None
    unusable: Annotated[phases.Unusable, BeforeValidator(lambda reason: {"reason": reason})] | None = None
    fault: Fault | None = None

    @model_validator(mode="after")
    def _one_answer(self) -> "Rule":
        first, *beside = self.given or [""]
        if not first or (beside and (len(beside) > 1 or first not in ("frame", "reflect") or beside[0] not in NEXT)):
            may = "frame and reflect may have a plan, an ask or a wait beside them"
            raise ValueError(f"needs exactly one of {', '.join(ANSWERS)}, but {may}")
        serve = (*SERVE[self.phase], "unusable", "fault")
        if first not in serve:
            raise ValueError(f"`{first}` answers no question of phase {self.phase}: give {', '.join(serve)}")
        if self.reflect and self.phase in (Phase.FRAME, Phase.PLAN) and self.reflect.verdict is not Verdict.ESCALATE:
            raise ValueError(f"in phase {self.phase} the only verdict of `reflect` is escalate")
        if self.frame and (flaws := self.frame.flaws()):
            raise ValueError("; ".join(map(str, flaws)))
        return self

    @cached_property
    def names_values(self) -> bool:
        """True if its answer contains placeholders; most do not."""
        return "$" in self.model_dump_json(exclude={"when"})

    @cached_property
    def given(self) -> list[str]:
        return [name for name in ANSWERS if getattr(self, name) is not None]


class ScriptedModel(Closed):
    """Named list of rules, tried in order. Implements ModelProvider."""

    is_free: ClassVar[bool] = True
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]

    def advice(self) -> Iterator[str]:
        """Warnings about gaps in the script."""
        for phase in (Phase.FRAME, Phase.PLAN, Phase.REFLECT):
            if all(rule.phase != phase for rule in self.rules):
                yield f"no rule of phase {phase}: a run that asks for one ends there (`script_ends`)"
        always: dict[str, int] = {}
        for number, rule in enumerate(self.rules):
            if rule.phase in always:
                yield f"rules.{number} is never used: rules.{always[rule.phase]} answers every {rule.phase}"
            elif rule.when == Condition():
                always[rule.phase] = number
            known = {*NAMES, *(rule.when.goal.groupindex if rule.when.goal else ())}
            for name in sorted(set(Template(rule.model_dump_json(exclude={"when"})).get_identifiers()) - known):
                yield f"rules.{number}: ${name} stands for nothing: there are {', '.join(f'${one}' for one in NAMES)}"

    def prepare(self, question: ModelQuestion) -> ModelCall:
        return ModelCall(reserved=None, make=partial(self._decide, question))

    @property
    def verifies(self) -> bool:
        return any(rule.phase == "verify" for rule in self.rules)

    async def check(self) -> tuple[str, ...]:
        return ()

    async def _decide(self, question: ModelQuestion) -> ModelReplied:
        model, state, usage, plan = f"script:{self.name}", question.state, _FREE, None
        answer: Any = phases.Digest(memory=state.facts)
        for rule in self.rules:
            if rule.phase == question.phase and rule.when.holds(state):
                if rule.wait_s:
                    await asyncio.sleep(rule.wait_s)
                usage, (answer, plan) = rule.usage, _answer(rule, state)
                break
        else:
            if question.phase is not Phase.COMPACT:  # optional in a script; without it all facts stay
                message = f"{model} has no rule for {question.phase} after {len(state.completed)} steps"
                raise ModelError("fail", "script_ends", f"{message}: add one")
        return ModelReplied(
            at=question.now, call=question.call, model=model, usage=usage, decision=answer, plan=plan, words=state.words
        )


def _answer(rule: Rule, state: RunState) -> tuple[Any, Any]:
    """The decision of a rule, and the one beside it."""
    if fault := rule.fault:
        raise ModelError(fault.remedy, fault.error_class, fault.message, fault.retry_after_s)
    first, *beside = rule.given
    answer = getattr(rule, first)
    along = getattr(rule, beside[0]) if beside and state.brief.fused else None
    if rule.names_values:
        names = _names(rule.when.goal, state)
        answer, along = _filled(answer, names), along and _filled(along, names)
    return answer, along


def read_script(path: Path) -> ScriptedModel:
    """Raises Misconfigured with the file, the rule and its fault."""
    try:
        return ScriptedModel.model_validate(parse(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, NotYaml) as error:
        raise Misconfigured(f"script {path} cannot be read: {error}") from error
    except ValidationError as error:
        raise Misconfigured(f"script {path}: {validation_flaws(error, whole='the whole', most=None)}") from error


@asynccontextmanager
async def opened(settings: ModelSettings) -> AsyncIterator[ScriptedModel]:
    """Raises Misconfigured."""
    yield read_script(settings.script_file())


def _names(goal: Pattern | None, state: RunState) -> dict[str, str]:
    output, found = state.last_output or {}, goal.search(state.brief.goal) if goal else None
    return {
        "goal": state.brief.goal,
        "step": str(state.step),
        "tool": state.completed[-1].tool if state.completed else "",
        "artifact": str(output.get("artifact_path", "")),
        "result": str(output.get("summary") or output.get("message") or ""),
        **(found.groupdict(default="") if found else {}),
    }


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _filled(answer: Any, names: dict[str, str]) -> Any:
    adapter = _adapter(answer.__class__)
    quoted = {name: json.dumps(value)[1:-1] for name, value in names.items()}
    return adapter.validate_json(Template(adapter.dump_json(answer).decode()).safe_substitute(quoted))
