"""The `agent` tool: a run that is started by a run, as a step of it (a child). What it is asked with, and what a child
says that it spent.

The agent carries it out itself: its requests are on the bus for others to see.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from schemas import subjects
from schemas.catalog import ToolCommand, ToolOffer
from schemas.fields import Count, Goal, Instant, JsonObject, ToolName

NAME = "agent"
COMMAND = "run"
_LONGEST_S = 86400.0


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


class AgentConstraints(_Wire):
    """What a child may spend at most; less where the run that asks has less left."""

    max_steps: Count | None = None
    max_tokens: Count | None = None
    max_cost_usd: Annotated[float, Field(strict=True, gt=0)] | None = None
    deadline_at: Instant | None = None


class AgentCall(_Wire):
    """What a child is to do. `tools`: those of the run that asks that it may use; null for all of them."""

    goal: Goal
    constraints: AgentConstraints = AgentConstraints()
    context: JsonObject = Field(default_factory=dict)
    tools: Annotated[tuple[ToolName, ...], Field(min_length=1)] | None = None
    evidence: tuple[JsonObject, ...] = ()
    """What other tasks brought that this one depends on."""


class ChildUsage(_Wire):
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


def offer() -> ToolOffer:
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
        output="trusted",  # each result says whether its run has read what strangers wrote
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
