"""Settings of a Ductile (`gateway.ductile`, `gateway.ductiles`): docs/CONFIGURATION.md.

With several Ductiles, `home_echo` is the plugin `echo` of `home`. The name of a Ductile has no underscore.
"""

from collections.abc import Container, Mapping
from typing import Annotated, Self

from pydantic import Field, PrivateAttr, StringConstraints, model_validator

from groundwork.service.config_file import Section, written
from groundwork.service.secret import Secret, SigningSecret, is_address, keeps_secrets
from schemas import subjects
from schemas.fields import ToolName


def owner(tool: str, names: Container[str]) -> str:
    """Name of the tool's or route's Ductile; empty if it begins with none of these names."""
    name, ends, _ = tool.partition("_")
    return name if ends and name in names else ""


def full_name(name: str, *, of: str) -> str:
    return f"{of}_{name}" if of else name


def own_name(name: str, *, of: str) -> str:
    return name.removeprefix(f"{of}_") if of else name


_EVENT_TYPE = written(r"[a-z0-9]+(?:[._-][a-z0-9]+)*", "lower-case words, joined by dots, `-` or `_`")
EventType = Annotated[str, StringConstraints(max_length=128), _EVENT_TYPE]
"""As Ductile accepts it."""
_NAME = "[a-z0-9][a-z0-9_-]{0,63}"
_Command = Annotated[str, written(f"{_NAME}/{_NAME}", "PLUGIN/COMMAND")]
_PEER_NAME = written(r"[a-z0-9]+(?:-[a-z0-9]+)*", "lower-case letters and digits, with single `-` between")
PeerName = Annotated[str, _PEER_NAME]
DuctileName = Annotated[str, StringConstraints(max_length=32), _PEER_NAME]
IngressPeerName = Annotated[str, StringConstraints(max_length=48), _PEER_NAME]


class RelayPeerSettings(Section):
    path: Annotated[str, written(r"/[A-Za-z0-9._~/-]*", "a path, such as /ingest/peer")] = "/ingest/peer"
    peer: PeerName = "agentic-gateway"
    key_id: Annotated[str, written("[!-~]*", "ASCII characters without spaces")] = "v1"
    secret: SigningSecret

    @property
    def ingress_path(self) -> str:
        return f"{self.path.rstrip('/')}/{self.peer}"


class RelayRouteSettings(RelayPeerSettings):
    """Calls sent as signed events. One without an answer is sent again under the same dedupe key."""

    routes: Annotated[dict[ToolName, EventType | None], Field(min_length=1)]

    def event_types(self) -> Mapping[str, str]:
        return {route: kind or subjects.tool_request(route) for route, kind in self.routes.items()}


class DuctileSettings(Section):
    url: str
    token: Secret
    allow_http_nonloopback: bool = False
    events: bool = True
    send_call_id: bool = True
    queue_most: Annotated[int, Field(ge=1)] | None = 500
    refresh_s: Annotated[float, Field(ge=1)] = 60.0
    request_timeout_s: Annotated[float, Field(gt=0)] = 15.0
    poll_most_s: Annotated[float, Field(gt=0)] = 5.0
    idempotent: frozenset[_Command] = frozenset()
    reading_pipelines: frozenset[ToolName] = frozenset()
    relay: RelayRouteSettings | None = None
    _name: str = PrivateAttr("")

    def name_it(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """Empty for `gateway.ductile`."""
        return self._name

    @property
    def place(self) -> str:
        return f"gateway.ductiles.{self._name}" if self._name else "gateway.ductile"

    @property
    def label(self) -> str:
        return f"ductile {self._name}".rstrip()

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        if not is_address(self.url, "http", "https") or set("@?#") & set(self.url):
            raise ValueError("url must be an address such as http://127.0.0.1:8080, without user, query and fragment")
        if not (self.allow_http_nonloopback or keeps_secrets(self.url)):
            raise ValueError(
                "the token would go over plain http to another machine: use https, or set allow_http_nonloopback"
            )
        if not self.token.get_secret_value().isascii() or not self.token.get_secret_value().isprintable():
            raise ValueError("the token has characters that no header can carry")
        return self

    def relayed(self) -> frozenset[str]:
        return frozenset(self.relay.routes if self.relay else ())
