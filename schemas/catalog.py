"""The tools that an executor offers to the agent: request and reply on the subject `ductile-gateway.catalog`.

A tool has a name (for the model), a route (the last token of its requests' subject) and commands. `read` and idempotent
commands may be repeated; a `write` with an unknown outcome never is. The tool `agent` starts a child run; the agent
serves it itself.
"""

import operator
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from schemas import subjects
from schemas.events import Constraints
from schemas.fields import Goal, JsonObject, Text, ToolName, Wire

UNNAMED = "unnamed"
"""The agent's name for an anonymous executor. A request to it names no executor."""


Approve = Literal["never", "always", "untrusted"]
"""Approval by a person: `untrusted` requires it once the run holds untrusted content."""
Effect = Literal["local", "external"]
Output = Literal["trusted", "untrusted"]


class ToolCommand(Wire):
    """One command of a tool. `input_schema` is a JSON Schema of an object.

    `effect`: a write inside this system that can be undone is `local`, any other `external`; null counts as external.
    `approve`: the operator's rule; null applies the rule by tier and effect. `output` overrides that of the tool.
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
    """A tool that an executor serves. One attempt may take `timeout_s` seconds.

    The agent sets `executor` to the name of the offering executor. `output`: results hold `untrusted` content; null
    counts as untrusted. `continues`: false if the tool never asks for continuations, so that none of its texts is read
    as one. `echoes_capability`: each result brings back the `capability` of its request; one without it is refused.
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
    """All tools of `executor`. `revision`: a hash of the content, if the executor sends one."""

    revision: str = ""
    tools: tuple[ToolOffer, ...]
    executor: ToolName | None = None


NAME = "agent"
COMMAND = "run"
_LONGEST_S = 86400.0


class AgentCall(Wire):
    """Arguments of the tool `agent`. `tools`: a subset of the parent's tools; null allows all. `constraints` are capped
    by the parent's remaining budgets."""

    goal: Goal
    constraints: Constraints = Constraints.model_construct()
    context: JsonObject = Field(default_factory=dict)
    tools: Annotated[tuple[ToolName, ...], Field(min_length=1)] | None = None
    evidence: tuple[JsonObject, ...] = ()
    """Results of the tasks that this one depends on."""


class ChildUsage(Wire):
    """Spending and steps of a child, including its own children's."""

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
    """The tool `agent`, for runs that may start children. A child asks for approvals itself."""
    command = ToolCommand(
        name=COMMAND,
        description="Let another agent pursue a goal of its own, to its end.",
        tier="write",
        idempotent=True,
        effect="local",
        input_schema=_arguments(),
    )
    return ToolOffer(
        echoes_capability=True,  # the agent makes results of children from their states, not from the bus
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
