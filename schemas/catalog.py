"""The tools that an executor offers to the agent: request and reply on the subject `ductile-gateway.catalog`.

The gateway is one executor; any other that answers there stands beside it. A tool has a name (what the model says), a
route (the last token of its requests' subject; the gateway's are Ductile plugins and pipelines) and commands. A
command's tier decides what may be repeated: `read` and idempotent commands may, a `write` whose outcome is unknown
never is.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from schemas.fields import Text, ToolName

UNNAMED = "unnamed"
"""What the agent calls an executor that does not say its name. A request to it names no executor."""


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


Approve = Literal["never", "always", "untrusted"]
"""When a person must allow a command: `untrusted` once content of strangers is in the run."""
Effect = Literal["local", "external"]
Output = Literal["trusted", "untrusted"]


class ToolCommand(_Wire):
    """One command of a tool. `input_schema` is a JSON Schema of an object.

    `effect`: whether what a write does stays in the house and can be undone there (`local`), or not (`external`); null
    where nobody says, which counts as external. `approve`: as the operator wants it; null: by tier and effect.
    `output`: as that of its tool, where it is another.
    """

    name: ToolName
    description: Text = ""
    tier: Literal["read", "write"]
    idempotent: bool = False
    effect: Effect | None = None
    approve: Approve | None = None
    output: Annotated[Output | None, Field(exclude_if=lambda output: output is None)] = None
    input_schema: dict[str, JsonValue] = Field(default_factory=dict)


class ToolOffer(_Wire):
    """A tool that an executor can carry out. `timeout_s` is how long one attempt may take there, in seconds.

    `executor` is set by the agent: the name of whoever offered it. `output`: `untrusted` where its results hold what
    strangers wrote; null, where nobody says, counts as that. `continues`: false where it never asks for more, so that
    no text of its is read as if it did.
    `echoes_capability`: each result brings back the `capability` of its request; one without it counts for nothing.
    """

    name: ToolName
    route: ToolName
    description: Text = ""
    commands: Annotated[tuple[ToolCommand, ...], Field(min_length=1)]
    timeout_s: Annotated[float, Field(gt=0, le=86400)] = 60.0
    output: Annotated[Output | None, Field(exclude_if=lambda output: output is None)] = None
    continues: Annotated[bool, Field(exclude_if=lambda continues: continues)] = True
    executor: ToolName | None = None
    echoes_capability: Annotated[bool, Field(exclude_if=lambda echoes: not echoes)] = False


class Catalog(_Wire):
    """All tools that `executor` offers. `revision` is a hash of the content, where the executor tells one."""

    revision: str = ""
    tools: tuple[ToolOffer, ...]
    executor: ToolName | None = None
