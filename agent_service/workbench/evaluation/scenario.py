"""A scenario as its file says it (goal, tools, persons, expectations), and its variants in other wordings. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from agent_service.models import scripted_model
from agent_service.models.scripted_model import Rule, ScriptedModel, check_answers
from agent_service.settings import AgentSettings, ContinuationSettings, LimitSettings
from agent_service.workbench.evaluation.expected import Expected
from agent_service.workbench.evaluation.tools import Plugin, Strict, Tool
from groundwork.service.errors import Misconfigured
from groundwork.service.strict import NotYaml, parse
from schemas.events import Constraints, SignalKind
from schemas.events import Outcome as OfDoubt
from schemas.fields import Count, Goal, JsonObject, Text, flaws_of

_PLACE = re.compile(r"\{\{([a-z_]+)\}\}")


def told_apart(document: Any) -> Iterator[Any]:
    """Each variant of `document`, or itself. Raises ValueError for places without texts, and texts without names."""
    variants = document.pop("variants", None) if isinstance(document, dict) else None
    if variants is None:
        yield document
        return
    if not isinstance(variants, dict) or not variants:
        raise ValueError("variants: give at least one, as a name with its texts")
    for name, texts in variants.items():
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise ValueError(f"variants.{name}: give texts by name")
        told = _filled(document, texts, f"variants.{name}")
        yield {**told, "name": f"{told.get('name')}-{name}"}


def _filled(value: Any, texts: dict[str, str], where: str) -> Any:
    match value:
        case str():
            return _PLACE.sub(lambda place: _text(place[1], texts, where), value)
        case dict():
            return {key: _filled(inner, texts, where) for key, inner in value.items()}
        case list():
            return [_filled(inner, texts, where) for inner in value]
    return value


def _text(name: str, texts: dict[str, str], where: str) -> str:
    if name not in texts:
        raise ValueError(f"{where}: there is no text {name}")
    return texts[name]


class Allowance(Strict):
    """What a caller allows. `deadline_s` counts from the wake, or from the signal that raises it."""

    max_steps: Count | None = None
    max_tokens: Count | None = None
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    max_reframes: Annotated[int, Field(ge=0)] | None = None
    deadline_s: Annotated[float, Field(gt=0)] | None = None

    def constraints(self, at: datetime) -> Constraints:
        asked = self.model_dump(exclude={"deadline_s"}, exclude_none=True)
        if self.deadline_s is not None:
            asked["deadline_at"] = at + timedelta(seconds=self.deadline_s)
        return Constraints(**asked)


class PersonsSignal(Strict):
    """What a person does, `after_s` after its time; exactly one time is named.

    `child`: to the n-th run that the run started, and at the times of that one; without it to the run itself.
    `during_step`: that step was asked for, and has brought nothing yet. `during_call`: that model call is being made
    (`after_s` counts for nothing). `when_paused`, `when_escalated`: the first time, or the next time, that it is so. A
    ruling is of what waits for approval then.
    """

    child: Annotated[int, Field(ge=1)] | None = None
    during_step: Annotated[int, Field(ge=1)] | None = None
    during_call: Annotated[int, Field(ge=1)] | None = None
    when_paused: bool = False
    when_escalated: bool = False
    after_s: Annotated[float, Field(ge=0)] = 0.0
    kind: SignalKind | Literal["cancel"]
    message: Text | None = None
    constraints: Allowance | None = None
    outcome: OfDoubt | None = None
    """Of a write in doubt."""
    arguments_hash: Text | None = None
    """Of a ruling, where it is not of what waits."""

    @model_validator(mode="after")
    def _one_time(self) -> "PersonsSignal":
        times = (self.during_step is not None, self.during_call is not None, self.when_paused, self.when_escalated)
        if sum(times) != 1:
            raise ValueError("needs exactly one of during_step, during_call, when_paused, when_escalated")
        return self


class ModelFault(Strict):
    """What happens to model call `call` in the place of an answer, whichever model is asked. Exactly one kind."""

    call: Annotated[int, Field(ge=1)]
    outage_s: Annotated[float, Field(gt=0)] | None = None
    """The model is not to be had for so long, from when the call is first made."""
    refusal: Text | None = None
    """The provider refuses, with this word for why."""
    cut: bool = False
    """The reply ends at its most tokens."""

    @model_validator(mode="after")
    def _one_kind(self) -> "ModelFault":
        if (self.outage_s is not None) + (self.refusal is not None) + self.cut != 1:
            raise ValueError("needs exactly one of outage_s, refusal, cut")
        return self


class Script(Strict):
    """Rules of a scripted model, and what is expected of a run that they decide."""

    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]
    expect: Expected | None = None

    @model_validator(mode="after")
    def _decisions_are_valid(self) -> "Script":
        check_answers(self.rules)
        return self


def follower_of(name: str, script: Script) -> ScriptedModel:
    return ScriptedModel(scripted_model.Script(name=name, rules=script.rules))


class Scenario(Strict):
    """`script` decides well; its expectations add to `expect`. `obeying` obeys results; its own replace them."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,47}$")]
    title: Text
    why: Text
    """What it shows."""
    goal: Goal
    context: JsonObject = Field(default_factory=dict)
    constraints: Allowance = Allowance()
    limits: LimitSettings = LimitSettings()
    """The operator's, as under `agent.limits`."""
    continuations: ContinuationSettings = ContinuationSettings()
    """As under `agent.continuations`."""
    tools: tuple[Tool, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    """Tools that are not played: those that come along, as they are."""
    signals: tuple[PersonsSignal, ...] = ()
    model_faults: tuple[ModelFault, ...] = ()
    price_unknown: bool = False
    """Whether what the model costs counts as unknown."""
    expect: Expected
    script: Script
    obeying: Script | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> "Scenario":
        names = [*(tool.name for tool in self.tools), *(plugin.plugin for plugin in self.plugins)]
        names += [tool.name for tool in self.settings.own_tools()]
        if len(set(names)) < len(names):
            raise ValueError(f"tools: two have the same name: {', '.join(sorted(names))}")
        if self.obeying and self.obeying.expect is None:
            raise ValueError("obeying.expect: say what the program keeps such a model from")
        for expected in filter(None, (self.expect, self.script.expect)):
            unknown = {call.tool for call in expected.must_call} - set(names)
            if unknown:
                raise ValueError(f"expect.must_call: no such tool: {', '.join(sorted(unknown))}")
        return self

    @property
    def settings(self) -> AgentSettings:
        return AgentSettings(limits=self.limits, continuations=self.continuations)

    @property
    def missing(self) -> str:
        return "; ".join(filter(None, (plugin.missing for plugin in self.plugins)))

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)


SUFFIXES = frozenset({".yaml", ".yml"})


def own_folder() -> Path:
    return Path(str(resources.files("agent_service.workbench.evaluation") / "scenarios"))


def scenarios(folders: Iterable[Path], patterns: Sequence[str] = ()) -> list[Scenario]:
    """By name, in `folders`; with patterns those that fit. Raises Misconfigured: file, field, name twice, no match."""
    found: dict[str, tuple[Path, Scenario]] = {}
    for file in (file for folder in folders for file in _files(folder)):
        for scenario in read(file):
            if scenario.name in found:
                first = found[scenario.name][0]
                raise Misconfigured(
                    f"{file}: name: {scenario.name} is the name of the scenario in {first}: use another"
                )
            found[scenario.name] = file, scenario
    _check_patterns(patterns, found)
    chosen = (name for name in sorted(found) if not patterns or any(fnmatchcase(name, p) for p in patterns))
    return [found[name][1] for name in chosen]


def read(file: Path) -> list[Scenario]:
    """The scenario in `file`, or each of its variants. Raises Misconfigured with every problem and its field."""
    try:
        return [Scenario.model_validate(told) for told in told_apart(parse(file.read_text(encoding="utf-8")))]
    except (OSError, UnicodeDecodeError, NotYaml) as error:
        raise Misconfigured(f"scenario {file} cannot be read: {error}") from error
    except ValidationError as error:
        raise Misconfigured(f"scenario {file}: {flaws_of(error, whole='the whole', most=None)}") from error
    except ValueError as error:
        raise Misconfigured(f"scenario {file}: {error}") from error


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise Misconfigured(f"{folder} is no folder: name one that holds scenarios as *.yaml")
    return sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)


def _check_patterns(patterns: Sequence[str], found: Iterable[str]) -> None:
    names = sorted(found)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise Misconfigured(f"no scenario is called {pattern!r}; there are: {', '.join(names)}")
