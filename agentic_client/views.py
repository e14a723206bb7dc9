"""Views of runs in answers of the agent: frozen, and open to fields that are added later."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from agentic_client.errors import Broken
from schemas.fields import BudgetUse, DoneItem, Instant

Status = Literal["queued", "running", "paused", "done", "escalated", "failed", "cancelled"]
FINAL: frozenset[Status] = frozenset({"done", "escalated", "failed", "cancelled"})


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)


class Accepted(_View):
    """The run is durable, not done. The same `wake_id` returns the same run at any time."""

    run_id: str
    wake_id: str


class Asks(_View):
    """Pending request of a run to a person, with the names of `agent.waiting`.

    `kind` is `approval`, of `command` of `tool` with `arguments` or, without a tool, of the framing in `arguments`;
    `question`, perhaps with `choices`; `budget`, more of it; or `in_doubt`, whether `step` was carried out.
    """

    kind: str
    reason: str = ""
    step: int | None = None
    tool: str | None = None
    command: str | None = None
    arguments: dict[str, JsonValue] | None = None
    arguments_hash: str | None = None
    question: str | None = None
    question_hash: str | None = None
    choices: tuple[str, ...] = ()
    expires_at: Instant | None = None


class Step(_View):
    """A started step with its newest `attempt`; `summary` is from its tool."""

    step: int
    tool: str
    command: str
    attempt: int
    status: str
    summary: str = ""


class Usage(_View):
    """Cost of the model calls; `cost_usd` is null if a price is unknown."""

    calls: int
    tokens: int
    cost_usd: float | None


class _RunBase(_View):
    run_id: str
    wake_id: str
    status: Status
    goal: str
    summary: str
    ending_class: Annotated[str, Field(validation_alias=AliasChoices("class", "ending_class"))]
    accepted_at: Instant
    updated_at: Instant
    ended_at: Instant | None


class Run(_RunBase):
    """A run. `ending_class` names its ending, or why it pauses; `asks` is its pending request to a person.

    `outcome` is the result of a done run, `reason` why another one ended or pauses; `artifacts` are paths for
    `Client.read`.
    """

    outcome: str
    reason: str
    started_at: Instant | None
    steps: tuple[Step, ...]
    definition_of_done: tuple[DoneItem, ...]
    budget: BudgetUse
    usage: Usage
    asks: Asks | None = None
    artifacts: tuple[str, ...]
    parent_run_id: str | None = None
    stopped: str = ""
    """Who paused everything, and why; empty while the run goes on or has ended."""

    @property
    def done(self) -> bool:
        return self.status == "done"

    @property
    def ended(self) -> bool:
        return self.status in FINAL

    @property
    def rests(self) -> bool:
        return self.ended or self.status == "paused"


class RunLine(_RunBase):
    """A run in a list, with its number of started steps and the tool of the newest."""

    steps: int
    tool: str | None
    tokens: int
    cost_usd: float | None


class RunPage(_View):
    """Runs, newest first. `next_cursor` is null on the last page."""

    runs: tuple[RunLine, ...]
    next_cursor: str | None


class Event(_View):
    """A journal entry: the event in words and in full, and the run's status after it."""

    seq: int
    at: Instant
    kind: str
    summary: str
    status: Status
    pending_step: int | None
    event: dict[str, Any]
    hash: str


class File(_View):
    """A file of a run's folder. `size` is in bytes; `sha256` is null for a file too large to hash in a list."""

    path: str
    size: int
    sha256: str | None


class Command(_View):
    """A command of a tool: `tier` is `read` or `write`, `input_schema` the JSON Schema of its arguments."""

    name: str
    description: str
    tier: str
    input_schema: dict[str, Any]


class Tool(_View):
    """A tool that runs may use. `present` is True if its executor answers now."""

    name: str
    description: str
    present: bool
    commands: tuple[Command, ...]


M = TypeVar("M", bound=_View)


def read_as(model: type[M], data: dict[str, Any]) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        where = ", ".join(sorted({str(flaw["loc"][0]) for flaw in error.errors() if flaw["loc"]}))
        raise Broken(f"this client does not know the agent's answer ({where}): is one of them much older?") from error
