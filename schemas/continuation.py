"""Continuations: a tool's request for more, before it can answer (the proposal on plugin loops).

Either one retrieval, `{"action": "retrieve", "query", "profile"?, "reason"?, "confidence"?}`, or several tasks that may
depend on each other, `{"action": "multi-step", "tasks": […], "reason"?, "confidence"?}`. A task without an id is
`task-<n>` by its position. Fields, ids, dependencies and cycles are checked here; tools and numbers by the agent.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from schemas.events import ToolOutput
from schemas.fields import LONGEST_PLACE, Closed, JsonObject, Text, ToolName, not_blank, plain_rule, sound_flaws
from schemas.markdown_form import is_form, read_form
from schemas.values import dataclass

AGAIN = "again"
"""Reserved: names the request that asks the tool again."""
LONGEST_TEXT = 4096
MOST_TASKS = 1000
MOST_FLAWS = 12

_ID = r"[a-z0-9][a-z0-9_-]{0,31}"


class ContinuationInvalid(ValueError):
    """An unusable continuation. The text names every flaw with its field or line."""


def _id(text: str) -> str:
    if not re.fullmatch(_ID, text) or text == AGAIN:
        raise ValueError(f"must be an id such as task-1 (a-z, 0-9, _ and -, at most 32, not '{AGAIN}')")
    return text


def _ids(value: object) -> object:
    if not isinstance(value, list | tuple) and value not in (None, "none"):
        raise ValueError("must be a list of ids, or 'none'")
    return value if isinstance(value, list | tuple) else ()


def _input(value: object) -> object:
    if not isinstance(value, str | dict):
        raise ValueError("must be a text, or an object with the arguments")  # noqa: TRY004 - pydantic takes no other
    if isinstance(value, str) and not value.strip():
        raise ValueError("must not be blank")
    return value


Id = Annotated[
    str, AfterValidator(_id), WithJsonSchema({"type": "string", "pattern": f"^{_ID}$", "not": {"const": AGAIN}})
]
Said = Annotated[Text, Field(max_length=LONGEST_TEXT), AfterValidator(not_blank)]
Ids = Annotated[
    tuple[Id, ...],
    BeforeValidator(_ids, json_schema_input_type=list[Id] | Literal["none"] | None),
    Field(validation_alias=AliasChoices("depends_on", "dependsOn")),
]


class Retrieve(Closed):
    """One retrieval. `profile`: the thoroughness, by a name that the retrieval tool knows."""

    action: Literal["retrieve"]
    query: Said
    profile: ToolName | None = None
    reason: Said | None = None
    confidence: Said | None = None

    @property
    def tasks(self) -> "tuple[RetrieveTask, ...]":
        asked = self.model_dump(include={"action", "query", "profile", "reason"})
        return (RetrieveTask(id="task-1", **asked),)


class _Task(Closed):
    """A task without an id is named by its place."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema["required"].remove("id"))
    id: Id


class RetrieveTask(_Task):
    """A retrieval among tasks. It gets the results of the tasks that it depends on."""

    action: Literal["retrieve"]
    query: Said
    profile: ToolName | None = None
    depends_on: Ids = ()
    reason: Said | None = None


class PluginTask(_Task):
    """One call of a tool. It gets the results of the tasks that it depends on. `input`: arguments, or a text for a tool
    that takes one."""

    action: Literal["plugin"]
    plugin: ToolName
    command: ToolName | None = None
    input: Annotated[Text | JsonObject, BeforeValidator(_input, json_schema_input_type=str | dict[str, Any])]
    depends_on: Ids = ()
    reason: Said | None = None


Task = RetrieveTask | PluginTask


class MultiStep(Closed):
    """Several tasks. Independent ones run in parallel, within the agent's limits."""

    action: Literal["multi-step"]
    reason: Said | None = None
    confidence: Said | None = None
    tasks: Annotated[
        tuple[Annotated[Task, Field(discriminator="action")], ...], Field(min_length=1, max_length=MOST_TASKS)
    ]

    @field_validator("tasks", mode="before")
    @classmethod
    def _named_by_place(cls, tasks: object) -> object:
        if not isinstance(tasks, list):
            return tasks
        return [
            task | {"id": f"task-{place}"} if isinstance(task, dict) and task.get("id") is None else task
            for place, task in enumerate(tasks, 1)
        ]

    @model_validator(mode="after")
    def _can_be_done(self) -> "MultiStep":
        flaws = [
            InitErrorDetails(
                type=PydanticCustomError("tasks", "{flaw}", {"flaw": flaw}), loc=("tasks", place, name), input=None
            )
            for place, name, flaw in islice(_flaws_of(self.tasks), MOST_TASKS)
        ]
        if flaws:
            raise ValidationError.from_exception_data("tasks", flaws)
        return self


def _flaws_of(tasks: Sequence[Task]) -> Iterator[tuple[int, str, str]]:
    """Yields the index of the task, the field, and the flaw."""
    first = {task.id: place for place, task in reversed(list(enumerate(tasks)))}
    for place, task in enumerate(tasks):
        if first[task.id] != place:
            yield place, "id", "is taken by an earlier task"
        for wanted, times in Counter(task.depends_on).items():
            if wanted not in first:
                yield place, "depends_on", f"names {wanted}, which is not a task of this continuation"
            elif times > 1:
                yield place, "depends_on", f"names {wanted} twice"
    try:
        TopologicalSorter({task.id: task.depends_on for task in tasks}).prepare()
    except CycleError as error:
        *cycle, again = error.args[1][::-1]
        path = " -> ".join([*cycle, again])
        yield first[cycle[0]], "depends_on", f"makes a cycle: {path} (each waits for the next)"


Continuation = Retrieve | MultiStep
CONTINUATION: TypeAdapter[Continuation] = TypeAdapter(
    Annotated[Continuation, Field(discriminator="action")], config=ConfigDict(defer_build=True)
)


def read_continuation(result: ToolOutput | None) -> Continuation:
    """Parses a tool result of status `continuation`: the object in `continuation`, or else the markdown form in
    `summary`, `markdown` or `excerpt`. Raises ContinuationInvalid."""
    fields = result.model_dump() if result else {}
    if fields.get("continuation") is not None:
        return parse_continuation(fields["continuation"])
    is_whole = fields.get("artifact_path") is None  # else the excerpt may be cut between two tasks
    texts = (fields.get(name) for name in ("summary", "markdown", *(("excerpt",) if is_whole else ())))
    form = next((text for text in texts if isinstance(text, str) and is_form(text)), None)
    if form is None:
        raise ContinuationInvalid("the result has neither 'continuation' nor the markdown form ('## Plugin Result')")
    try:
        said = read_plugin_result(form)
    except ValueError as error:
        raise ContinuationInvalid(str(error)) from None
    if said.continuation is None:
        raise ContinuationInvalid(f"the result says 'Status: {said.status}', and asks for nothing")
    return said.continuation


def parse_continuation(value: object) -> Continuation:
    """Parses the JSON form. Raises ContinuationInvalid, which names fields as `tasks.2.query`, counted from 0."""
    try:
        return CONTINUATION.validate_python(value)
    except ValidationError as error:
        found = (flaw for flaw in sound_flaws(error) if not _is_of_other(flaw))
        flaws = [f"{_place(flaw['loc']) or 'continuation'} {plain_rule(flaw['msg'])}" for flaw in found]
        more = f"; and {len(flaws) - MOST_FLAWS} more" if len(flaws) > MOST_FLAWS else ""
        raise ContinuationInvalid("; ".join(flaws[:MOST_FLAWS]) + more) from None


def _is_of_other(flaw: ErrorDetails) -> bool:
    """True for a flaw of the other kind of input, as `_input` has checked."""
    return flaw["loc"][-2:-1] == ("input",) and flaw["type"] in ("string_type", "dict_type")


def _place(place: tuple[int | str, ...]) -> str:
    """Without the tags of unions, and without our functions, which pydantic names."""
    place = place[1:] if place[:1] in (("retrieve",), ("multi-step",)) else place
    place = (*place[:2], *place[3:]) if place[2:3] in (("retrieve",), ("plugin",)) else place
    place = place[: place.index("input") + 1] if "input" in place else place
    return ".".join(map(str, place))[:LONGEST_PLACE]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginResult:
    """`plugin`: its own name for itself. `text`: the answer of a success, or the reason of an error."""

    status: str
    plugin: str
    confidence: str | None = None
    continuation: Continuation | None
    text: str


def read_plugin_result(text: str) -> PluginResult:
    """Parses a text that `is_form`. Raises ValueError with the line, or as `parse_continuation` does."""
    head, answer, request = read_form(text)
    said = {name: head[name] for name in ("confidence",) if name in head}
    continuation = None if request is None else parse_continuation(request | said)
    return PluginResult(**head, text=answer, continuation=continuation)
