"""The tools that an executor offers to the agent: request and reply on the subject `ductile-gateway.catalog`.

A tool has a name (what the model says), a route (the last token of its requests' subject) and commands. `read` and
idempotent commands may be repeated; a `write` whose outcome is unknown never is. The `agent` tool is a run that is
started by a run; the agent carries it out itself.
"""

import operator
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from schemas import subjects
from schemas.events import Constraints
from schemas.fields import Goal, JsonObject, Text, ToolName, Wire

UNNAMED = "unnamed"
"""What the agent calls an executor that does not say its name. A request to it names no executor."""


Approve = Literal["never", "always", "untrusted"]
"""When a person must allow a command: `untrusted` once untrusted content is in the run."""
Effect = Literal["local", "external"]
Output = Literal["trusted", "untrusted"]


class ToolCommand(Wire):
    """One command of a tool. `input_schema` is a JSON Schema of an object.

    `effect`: whether a write acts inside this system and can be undone (`local`), or not (`external`); null
    where it is not declared, which counts as external. `approve`: as the operator wants it; null: by tier and effect.
    `output`: as that of its tool, where it is another.
    """

    name: ToolName
    description: Text = ""
    tier: Literal["read", "write"]
    idempotent: bool = False
    effect: Effect | None = None
    approve: Approve | None = None
    output: Annotated[Output | None, Field(exclude_if=operator.not_)] = None
    input_schema: dict[str, JsonValue] = Field(default_factory=dict)


class ToolOffer(Wire):
    """A tool that an executor can carry out. `timeout_s` is how long one attempt may take there, in seconds.

    `executor` is set by the agent: the name of the executor that offered it. `output`: `untrusted` where its results
    hold untrusted content; null, where it is not declared, counts as that. `continues`: false where it never asks
    for more, so that no text of its is read as if it did.
    `echoes_capability`: each result brings back the `capability` of its request; one without it counts for nothing.
    """

    name: ToolName
    route: ToolName
    description: Text = ""
    commands: Annotated[tuple[ToolCommand, ...], Field(min_length=1)]
    timeout_s: Annotated[float, Field(gt=0, le=86400)] = 60.0
    output: Annotated[Output | None, Field(exclude_if=operator.not_)] = None
    continues: Annotated[bool, Field(exclude_if=operator.truth)] = True
    executor: ToolName | None = None
    echoes_capability: Annotated[bool, Field(exclude_if=operator.not_)] = False

    def command(self, name: str) -> ToolCommand | None:
        return next((command for command in self.commands if command.name == name), None)


class Catalog(Wire):
    """All tools that `executor` offers. `revision` is a hash of the content, where the executor tells one."""

    revision: str = ""
    tools: tuple[ToolOffer, ...]
    executor: ToolName | None = None


NAME = "agent"
COMMAND = "run"
_LONGEST_S = 86400.0


class AgentCall(Wire):
    """What a child is to do. `tools`: those of the run that asks that it may use; null for all of them. Of the
    `constraints` it gets less where the run that asks has less left."""

    goal: Goal
    constraints: Constraints = Constraints.model_construct()
    context: JsonObject = Field(default_factory=dict)
    tools: Annotated[tuple[ToolName, ...], Field(min_length=1)] | None = None
    evidence: tuple[JsonObject, ...] = ()
    """What other tasks brought that this one depends on."""


class ChildUsage(Wire):
    """What a child spent, with all that its own children spent: the numbers of Spent, and its steps."""

    calls: Annotated[int, Field(ge=0)] = 0
    input_tokens: Annotated[int, Field(ge=0)] = 0
    output_tokens: Annotated[int, Field(ge=0)] = 0
    cost_usd: Annotated[float, Field(ge=0)] | None = 0.0
    cache_read_tokens: Annotated[int, Field(ge=0)] = 0
    lost_calls: Annotated[int, Field(ge=0)] = 0
    lost_tokens: Annotated[int, Field(ge=0)] = 0
    lost_cost_usd: Annotated[float, Field(ge=0)] | None = 0.0
    steps: Annotated[int, Field(ge=0)] = 0


def agent_tool() -> ToolOffer:
    """As runs get it that may start others. The child asks by itself for what a person must allow."""
    command = ToolCommand(
        name=COMMAND,
        description="Let another agent pursue a goal of its own, to its end.",
        tier="write",
        idempotent=True,
        effect="local",
        input_schema=_arguments(),
    )
    return ToolOffer(
        echoes_capability=True,  # what answers for a run is made of that run's own state, and of nothing on the bus
        name=NAME,
        route=subjects.SERVICE_AGENT,
        description=(
            "Another agent, for a part of the goal that stands by itself. It knows nothing but the goal and context it "
            "is given. It brings its outcome, and its artifacts. What it spends is taken from this run's budget."
        ),
        commands=(command,),
        timeout_s=_LONGEST_S,
        output="trusted",  # each result says whether its run has read untrusted content
        executor=subjects.SERVICE_AGENT,
    )


def _arguments() -> dict[str, JsonValue]:
    number: dict[str, JsonValue] = {"type": "integer", "minimum": 1}
    constraints: dict[str, JsonValue] = {
        "max_steps": number,
        "max_tokens": number,
        "max_cost_usd": {"type": "number", "exclusiveMinimum": 0},
        "deadline_at": {"type": "string", "format": "date-time"},
    }
    return {
        "type": "object",
        "properties": {
            "goal": {"type": "string", "minLength": 1, "description": "what is to be true in the end, in full"},
            "context": {"type": "object", "description": "what it has to know"},
            "constraints": {"type": "object", "properties": constraints, "additionalProperties": False},
            "tools": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "description": "the tools that it may use, of those on offer here; all where none are named",
            },
        },
        "required": ["goal"],
        "additionalProperties": False,
    }
