"""What a scenario expects of a run, as its file says it."""

from importlib import resources
from typing import Annotated, Any, ClassVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from agent_service.core.waiting import Status
from agent_service.models.scripted_model import Pattern

Number = Annotated[int, Field(ge=0)]
HAPPENINGS: dict[str, dict[str, Any]] = yaml.safe_load(
    resources.files("agent_service.workbench.evaluation").joinpath("happenings.yaml").read_text("utf-8")
)
Happening = Annotated[str, Field(pattern=f"^({'|'.join(HAPPENINGS)})$")]


class Strict(BaseModel):
    """Misspelt fields are refused. Of the fields in `one_of`, exactly one is given."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    one_of: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _one_is_given(self) -> "Strict":
        if self.one_of and sum(getattr(self, name) not in (None, False) for name in self.one_of) != 1:
            raise ValueError(f"needs exactly one of {', '.join(self.one_of)}")
        return self


class Bounds(Strict):
    at_least: Number = 0
    at_most: Number | None = None

    @property
    def words(self) -> str:
        if self.at_most is None:
            return f"at least {self.at_least}"
        return f"{self.at_least} to {self.at_most}" if self.at_least < self.at_most else str(self.at_most)

    def hold(self, number: int) -> bool:
        return self.at_least <= number and (self.at_most is None or number <= self.at_most)


def _call(given: Any) -> Any:
    return {"tool": given} if isinstance(given, str) else given


class Call(Strict):
    """Of a tool, a command, with arguments whose canonical JSON matches. `task`: part of a sub-request's name."""

    tool: str
    command: str | None = None
    when: Pattern | None = None
    task: Pattern | None = None

    def __str__(self) -> str:
        command = f" {self.command}" if self.command else ""
        task = f" for task /{self.task.pattern}/" if self.task else ""
        return f"{self.tool}{command}{f' with /{self.when.pattern}/' if self.when else ''}{task}"


class WantedCall(Call, Bounds):
    at_least: Number = 1


class Children(Bounds):
    status: tuple[Status, ...] = ()


class Expected(Strict):
    """All that is given must hold. `status`, `class`: one of these; `paused` is where a run rests that is not resumed,
    and a class is of a run that is not done. `outcome`: in that of a run that is done, else in the reason. `calls`:
    replies of the model. `tasks`: sub-requests of its steps, but for those that ask a tool again: `rounds`.
    `never_say`: in no argument of a tool, and in no event of the agent.
    """

    status: tuple[Status, ...] = ()
    ending_class: Annotated[tuple[str, ...], Field(alias="class")] = ()
    outcome: Pattern | None = None
    steps: Bounds = Bounds()
    calls: Bounds = Bounds()
    tasks: Bounds = Bounds()
    rounds: Bounds = Bounds()
    children: Children = Children()
    must_call: tuple[Annotated[WantedCall, BeforeValidator(_call)], ...] = ()
    never_call: tuple[Annotated[Call, BeforeValidator(_call)], ...] = ()
    never_say: tuple[Annotated[str, Field(min_length=4)], ...] = ()
    must_happen: tuple[Happening, ...] = ()
    never_happen: tuple[Happening, ...] = ()

    @model_validator(mode="after")
    def _says_something(self) -> "Expected":
        if not self.model_fields_set:
            raise ValueError("expects nothing: name at least a status")
        return self
