"""Scenario files: goal, tools, persons, expectations, and variants in other wordings. Pure."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from agent_service.models.scripted_model import Pattern, Rule
from agent_service.settings import AgentSettings, ContinuationSettings, LimitSettings
from agent_service.workbench.evaluation.expected import HERE, Expected, Strict
from agent_service.workbench.evaluation.results import Group
from groundwork.service.errors import Misconfigured
from groundwork.service.program import shipped
from groundwork.service.strict import NotYaml, parse
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import Constraints, Outcome, SignalKind, ToolError
from schemas.fields import Goal, Json, JsonObject, Text, ToolName, validation_flaws

PLUGINS = shipped("deploy", "ductile", "plugins")
HOUSEKEEPING = frozenset({"health", "init"})
"""Commands of plugins that are not on offer."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Nth = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0)]


class Lines(Strict):
    """Repeats `line` for each number from `first` to `last`, which replaces `{n}`."""

    line: Text
    first: int = 1
    last: Annotated[int, Field(le=100_000)]

    def __str__(self) -> str:
        return "\n".join(self.line.replace("{n}", str(number)) for number in range(self.first, self.last + 1))


class Document(Strict):
    """Artifact that a tool leaves in the run."""

    name: Name
    content: Text | tuple[Text | Lines, ...]
    content_type: str = "text/plain"

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "\n".join(map(str, self.content))


class AnswerResult(Strict):
    summary: Text = ""
    output: JsonObject = Field(default_factory=dict)
    artifact: Document | None = None


class ToolAnswer(Strict):
    """Answer of a simulated tool; the first that matches is used. `when` is searched for in the canonical JSON of the
    arguments; `nth` counts the calls that match. A `continuation`, valid or not, is sent as given: as JSON or in the
    markdown form."""

    one_of = ("result", "error", "continuation", "silence")
    command: str | None = None
    when: Pattern | None = None
    nth: Nth | None = None
    takes_s: Seconds = 2.0
    result: AnswerResult | None = None
    error: ToolError | None = None
    continuation: JsonObject | Text | None = None
    silence: bool = False


class ScenarioCommand(ToolCommand):
    name: ToolName = "handle"
    input_schema: dict[str, Json]


class ScenarioTool(ToolOffer):
    route: ToolName = ""
    commands: Annotated[tuple[ScenarioCommand, ...], Field(min_length=1)]
    answers: tuple[ToolAnswer, ...]

    @property
    def offer(self) -> ToolOffer:
        return ToolOffer(**self.model_dump(exclude={"answers", "route"}) | {"route": self.name})


class Plugin(Strict):
    """A real plugin, run as one process per call. `folder` holds it; the default is that of the shipped plugins.
    `files` are written to a folder that `config` names as `$files`. The scenario is skipped if the Python module
    `needs` is missing."""

    plugin: ToolName
    folder: Path = PLUGINS
    config: JsonObject = Field(default_factory=dict)
    files: dict[Name, Text] = Field(default_factory=dict)
    needs: Text | None = None

    @model_validator(mode="after")
    def _can_be_used(self) -> "Plugin":
        try:
            self.offer  # noqa: B018 - reads the manifest
        except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError) as error:
            why = f"`ductile-gateway check --tools {self.folder}` says why"
            raise ValueError(f"there is no usable plugin {self.plugin} in {self.folder}: {why}") from error
        return self

    @property
    def place(self) -> Path:
        return self.folder.absolute() / self.plugin

    @cached_property
    def manifest(self) -> dict[str, Any]:
        read: dict[str, Any] = yaml.safe_load((self.place / "manifest.yaml").read_text("utf-8"))
        return read

    @cached_property
    def offer(self) -> ToolOffer:
        shown = [command for command in self.manifest["commands"] if command["name"] not in HOUSEKEEPING]
        commands = [command | {"tier": command["type"]} for command in shown]
        return ToolOffer.model_validate(self.manifest | {"route": self.manifest["name"], "commands": commands})


class CallerLimits(Constraints):
    """Limits from the caller. `deadline_s` counts from the wake, or from the signal that raises the budget."""

    deadline_s: Annotated[float, Field(gt=0)] | None = None

    def constraints(self, at: datetime) -> Constraints:
        asked = self.model_dump(exclude={"deadline_s"}, exclude_none=True)
        if self.deadline_s is not None:
            asked["deadline_at"] = at + timedelta(seconds=self.deadline_s)
        return Constraints(**asked)


class PersonAction(Strict):
    """Action of a person, `after_s` seconds after its trigger. `child` names the n-th child run instead of the run.

    Triggers: `during_step`, once that step is requested; `during_call`, while that model call is made (without
    `after_s`); `when_paused` and `when_escalated`, the first time or the next time. A ruling is for the pending
    approval, or for `arguments_hash`; `outcome` settles a write in doubt.
    """

    one_of = ("during_step", "during_call", "when_paused", "when_escalated")
    child: Nth | None = None
    during_step: Nth | None = None
    during_call: Nth | None = None
    when_paused: bool = False
    when_escalated: bool = False
    after_s: Seconds = 0.0
    kind: SignalKind | Literal["cancel"]
    message: Text | None = None
    constraints: CallerLimits | None = None
    outcome: Outcome | None = None
    arguments_hash: Text | None = None


class ScenarioScript(Strict):
    """Rules of a scripted model, and expectations of a run that they decide."""

    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]
    expect: Expected | None = None


class Scenario(Strict):
    """`why` says what it shows, `group` whose rate it counts for. `limits` and `continuations` are settings of the
    operator. `script` decides well and adds its expectations to `expect`. `obeying` obeys injected orders; its
    expectations replace `expect`."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,47}$")]
    title: Text
    why: Text
    group: Group = "work"
    goal: Goal
    context: JsonObject = Field(default_factory=dict)
    constraints: CallerLimits = CallerLimits()
    limits: LimitSettings = LimitSettings()
    continuations: ContinuationSettings = ContinuationSettings()
    tools: tuple[ScenarioTool, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    signals: tuple[PersonAction, ...] = ()
    expect: Expected
    script: ScenarioScript
    obeying: ScenarioScript | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> "Scenario":
        names = [tool.name for tool in (*self.tools, *self.settings.own_tools())]
        names += [plugin.plugin for plugin in self.plugins]
        if len(set(names)) < len(names):
            raise ValueError(f"tools: two have the same name: {', '.join(sorted(names))}")
        if self.obeying and self.obeying.expect is None:
            raise ValueError("obeying.expect: say what the program keeps such a model from")
        wanted = {call.tool for one in (self.expect, self.script.expect) if one for call in one.must_call}
        if unknown := sorted(wanted.difference(names)):
            raise ValueError(f"expect.must_call: no such tool: {', '.join(unknown)}")
        return self

    @property
    def settings(self) -> AgentSettings:
        return AgentSettings(limits=self.limits, continuations=self.continuations)

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(one.needs for one in self.plugins if one.needs and find_spec(one.needs) is None)


_PLACE = re.compile(r"\{\{([a-z_]+)\}\}")
_VARIANTS = TypeAdapter(dict[str, dict[str, str]])
"""Texts by the names of their places, by the names of the variants."""


def _variants_of(document: Any) -> Iterator[Any]:
    """Yields each variant of `document`, or itself. Raises ValueError for malformed variants."""
    variants = document.pop("variants", None) if isinstance(document, dict) else None
    if variants is None:
        yield document
        return
    written = json.dumps(document, default=str)  # YAML has dates
    for name, texts in _VARIANTS.validate_python(variants).items():
        try:
            filled = _PLACE.sub(lambda place, texts=texts: json.dumps(texts[place[1]])[1:-1], written)  # type: ignore[misc] # bound at once
        except KeyError as error:
            raise ValueError(f"variants.{name}: there is no text {error}") from None
        yield json.loads(filled) | {"name": f"{document.get('name')}-{name}"}


SHIPPED_SCENARIOS = HERE / "scenarios"


def scenarios(folders: Iterable[Path], patterns: Sequence[str] = ()) -> list[Scenario]:
    """Scenarios in `folders` by name, filtered by patterns. Raises Misconfigured for an invalid file, a name that
    occurs twice, and a pattern without a match."""
    found: dict[str, tuple[Path, Scenario]] = {}
    for folder in folders:
        for file in sorted(folder.glob("*.y*ml")):
            for scenario in read(file):
                if scenario.name in found:
                    taken = f"{scenario.name} is the name of the scenario in {found[scenario.name][0]}"
                    raise Misconfigured(f"{file}: name: {taken}: use another")
                found[scenario.name] = file, scenario
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in found):
            raise Misconfigured(f"no scenario is called {pattern!r}; there are: {', '.join(sorted(found))}")
    chosen = (name for name in sorted(found) if not patterns or any(fnmatchcase(name, p) for p in patterns))
    return [found[name][1] for name in chosen]


def read(file: Path) -> list[Scenario]:
    """Reads the scenario in `file`, or each of its variants. Raises Misconfigured with every problem and its field."""
    try:
        documents = _variants_of(parse(file.read_text(encoding="utf-8")))
        return [Scenario.model_validate(document, extra="forbid") for document in documents]
    except ValidationError as error:
        raise Misconfigured(f"scenario {file}: {validation_flaws(error, whole='the whole', most=None)}") from error
    except (OSError, ValueError, TypeError, NotYaml) as error:
        raise Misconfigured(f"scenario {file} cannot be read: {error}") from error
