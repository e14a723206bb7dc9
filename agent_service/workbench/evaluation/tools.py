"""The tools of a scenario as its file says them: what is on offer, and what is answered to which calls."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agent_service.models.scripted_model import Pattern
from schemas.catalog import Approve, ToolCommand, ToolOffer
from schemas.fields import Json, JsonObject, Text, ToolName


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Lines(Strict):
    """Many lines that differ in a number: `line` with `{n}` for each number of `first` to `last`."""

    line: Text
    first: int = 1
    last: Annotated[int, Field(le=100_000)]

    def __str__(self) -> str:
        return "\n".join(self.line.replace("{n}", str(number)) for number in range(self.first, self.last + 1))


class Document(Strict):
    """A file that a tool leaves behind: an artifact of the run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    content: Text | tuple[Text | Lines, ...]
    content_type: str = "text/plain"

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "\n".join(map(str, self.content))


class Brought(Strict):
    """A result that says `ok`; whether it is one is another question."""

    summary: Text = ""
    output: JsonObject = {}
    artifact: Document | None = None
    excerpt: Text | None = None
    """Of the artifact; without one its beginning."""


class Failure(Strict):
    error_class: Annotated[Text, Field(alias="class", max_length=64)]
    message: Text
    retryable: bool = False


class ToolAnswer(Strict):
    """One of `result`, `error`, `continuation`, `silence`. The first that fits; `nth`: of the calls that fit."""

    command: str | None = None
    when: Pattern | None = None
    """Is searched for in the arguments as canonical JSON: sorted keys, `", "` and `": "` between them."""
    nth: Annotated[int, Field(ge=1)] | None = None
    takes_s: Annotated[float, Field(ge=0)] = 2.0
    result: Brought | None = None
    error: Failure | None = None
    continuation: JsonObject | Text | None = None
    """It needs more first: as JSON, or as a text in the markdown form. Sent as it is, be it right or wrong."""
    silence: bool = False
    """It never answers."""

    @model_validator(mode="after")
    def _one_kind(self) -> "ToolAnswer":
        given = (self.result, self.error, self.continuation)
        if sum(one is not None for one in given) + self.silence != 1:
            raise ValueError("needs exactly one of result, error, continuation, silence")
        return self


class Command(Strict):
    name: ToolName = "handle"
    description: Text = ""
    tier: Literal["read", "write"]
    idempotent: bool = False
    effect: Literal["local", "external"] | None = None
    approve: Approve | None = None
    input_schema: dict[str, Json]


class Tool(Strict):
    name: ToolName
    description: Text
    commands: Annotated[tuple[Command, ...], Field(min_length=1)]
    timeout_s: Annotated[float, Field(gt=0, le=86400)] = 60.0
    output: Literal["trusted", "untrusted"] | None = None
    answers: tuple[ToolAnswer, ...]

    @property
    def offer(self) -> ToolOffer:
        commands = tuple(ToolCommand(**command.model_dump()) for command in self.commands)
        return ToolOffer(
            name=self.name,
            route=self.name,
            description=self.description,
            commands=commands,
            timeout_s=self.timeout_s,
            output=self.output,
        )
