"""Settings of the way to a Ductile: the section `gateway.ductile`. Every field says its unit and its default."""

import ipaddress
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, model_validator

_Command = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}/[a-z0-9][a-z0-9_-]{0,63}$")]
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


class DuctileSettings(BaseModel):
    """A Ductile that carries out the calls."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str
    """Where its API listens, such as http://127.0.0.1:8080."""
    token: SecretStr
    """An API token with plugin:ro (plugin:rw where tools write), jobs:ro and, for `events`, events:ro."""
    allow_http_nonloopback: bool = False
    """Send the token over plain http to another machine: whoever listens on the way can use it."""
    events: bool = True
    """Follow Ductile's event stream, to hear sooner that a job has ended. Off for a Ductile that is reloaded while it
    runs: an open stream makes it exit."""
    send_call_id: bool = True
    """Put the id of the call into the payload, as `agentic_call_id`. A plugin that repeats it in its result lets a call
    be found whose answer was lost."""
    in_flight: Annotated[int, Field(ge=1)] = 16
    """Calls at the same time, of all tools: Ductile itself takes any number and lets them queue."""
    request_timeout_s: Annotated[float, Field(gt=0)] = 15.0
    """How long Ductile may take to answer one HTTP request, in seconds."""
    poll_first_s: Annotated[float, Field(gt=0)] = 0.1
    """How soon a job is looked at again for the first time, in seconds; each further wait is twice as long."""
    poll_most_s: Annotated[float, Field(gt=0)] = 5.0
    """The longest wait between two looks at a job, in seconds."""
    breaker_failures: Annotated[int, Field(ge=1)] = 5
    """Failures to reach a plugin, one after the other, after which it is left alone for a while."""
    breaker_open_s: Annotated[float, Field(gt=0)] = 10.0
    """How long it is left alone, in seconds."""
    idempotent: frozenset[_Command] = frozenset()
    """Commands that do no harm when they are repeated, as `plugin/command`: Ductile does not tell."""
    reading_pipelines: frozenset[_Name] = frozenset()
    """Pipelines that change nothing, so that they may be repeated."""

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        address = urlsplit(self.url)
        if address.scheme not in ("http", "https") or not address.hostname or address.username:
            raise ValueError("url must be http:// or https:// and a host, without a user")
        if address.query or address.fragment:
            raise ValueError("url must have neither a query nor a fragment")
        if address.scheme == "http" and not self.allow_http_nonloopback and not _loopback(address.hostname):
            raise ValueError(
                "the token would go over plain http to another machine: use https, or set allow_http_nonloopback"
            )
        if not self.token.get_secret_value().isascii() or not self.token.get_secret_value().isprintable():
            raise ValueError("the token has characters that no header can carry")
        return self


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
