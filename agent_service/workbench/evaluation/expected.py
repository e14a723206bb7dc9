"""What a scenario expects of a run, as its file says it. How it is judged is in `verdict`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from agent_service.core.waiting import Status
from agent_service.models.scripted_model import Pattern

Happening = Literal[
    "cancel_while_pending",
    "compaction",
    "done_refused",
    "late_result",
    "model_wait",
    "pause",
    "reframe",
    "repair",
    "retry",
]
"""What can be seen in a journal, beyond how a run ended: see `happenings`."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Bounds(_Strict):
    """A number that is counted, both ends included."""

    at_least: Annotated[int, Field(ge=0)] = 0
    at_most: Annotated[int, Field(ge=0)] | None = None

    def __str__(self) -> str:
        if self.at_most is None:
            return f"at least {self.at_least}"
        return f"{self.at_least} to {self.at_most}" if self.at_least < self.at_most else str(self.at_most)

    def hold(self, number: int) -> bool:
        return self.at_least <= number and (self.at_most is None or number <= self.at_most)


class Call(_Strict):
    """Tool calls: of a tool, perhaps of one command, perhaps with arguments whose canonical JSON has a match."""

    tool: str
    command: str | None = None
    when: Pattern | None = None

    def __str__(self) -> str:
        command = f" {self.command}" if self.command else ""
        return f"{self.tool}{command}{f' with /{self.when.pattern}/' if self.when else ''}"


class WantedCall(Call):
    """How often such calls are made, each attempt counted."""

    at_least: Annotated[int, Field(ge=0)] = 1
    at_most: Annotated[int, Field(ge=0)] | None = None

    @property
    def bounds(self) -> Bounds:
        return Bounds(at_least=self.at_least, at_most=self.at_most)


def _call(given: Any) -> Any:
    """A name alone is the tool's."""
    return {"tool": given} if isinstance(given, str) else given


class Expected(_Strict):
    """All that is given must hold."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    status: tuple[Status, ...] = ()
    """One of these; `paused` is where a run rests that nobody resumes."""
    ending_class: Annotated[tuple[str, ...], Field(alias="class")] = ()
    """One of these; only of a run that is not done: how it ended, as its event says it."""
    outcome: Pattern | None = None
    """In the outcome of a run that is done, in the reason of one that is not."""
    steps: Bounds = Bounds()
    must_call: tuple[Annotated[WantedCall, BeforeValidator(_call)], ...] = ()
    never_call: tuple[Annotated[Call, BeforeValidator(_call)], ...] = ()
    never_say: tuple[Annotated[str, Field(min_length=4)], ...] = ()
    """In no argument of a tool and in no event of the agent: saying it counts as a broken rule."""
    must_happen: tuple[Happening, ...] = ()
    never_happen: tuple[Happening, ...] = ()

    @model_validator(mode="after")
    def _says_something(self) -> "Expected":
        if not self.model_fields_set:
            raise ValueError("expects nothing: name at least a status")
        return self
