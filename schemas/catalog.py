"""The tool catalog as the gateway serves it to the agent: request and reply on the subject `ductile-gateway.catalog`.

A tool has a name (what the model says), a route (the Ductile plugin or pipeline that serves it: the last token of the
request's subject) and commands. A command's tier decides what may be repeated: `read` and idempotent commands may,
a `write` whose outcome is unknown never is.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from schemas.events import Text, ToolName


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ToolCommand(_Wire):
    """One command of a tool. `input_schema` is a JSON Schema of an object."""

    name: ToolName
    description: Text = ""
    tier: Literal["read", "write"]
    idempotent: bool = False
    input_schema: dict[str, JsonValue] = Field(default_factory=dict)


class ToolOffer(_Wire):
    """A tool that the gateway can carry out. `timeout_s` is how long one attempt may take there, in seconds."""

    name: ToolName
    route: ToolName
    description: Text = ""
    commands: Annotated[tuple[ToolCommand, ...], Field(min_length=1)]
    timeout_s: Annotated[float, Field(gt=0, le=86400)] = 60.0


class Catalog(_Wire):
    """All tools on offer, sorted by name. `revision` is a hash of the content."""

    revision: str
    tools: tuple[ToolOffer, ...]
