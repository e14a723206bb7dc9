"""How the gateway is, as it tells on the subject `ductile-gateway.status`: request and reply, for people and probes."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from schemas.events import Text


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Finding(_Wire):
    """One thing that was looked at. `wrong`: calls cannot be carried out like this. Where all is well, no `remedy`."""

    name: Text
    mark: Literal["ok", "warning", "wrong"]
    text: Text
    remedy: Text = ""


class GatewayStatus(_Wire):
    """What was found, most important first. `version` is that of the gateway."""

    version: Text
    findings: Annotated[tuple[Finding, ...], Field(min_length=1)]
