"""Settings of incoming events (`gateway.ingress`) and of notifications (`gateway.outbound`): docs/CONFIGURATION.md."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator

from ductile_gateway.ductile.settings import DuctileName, EventType, IngressPeerName, RelayPeerSettings
from ductile_gateway.webhooks.signatures import standard_key
from groundwork.service.config_file import Port, Section, ServerSettings, written
from groundwork.service.secret import Secret, SigningSecret, is_address, unfit
from schemas import subjects
from schemas.fields import Instant, ToolName
from schemas.signing import PublicKey

WebhookName = Annotated[str, StringConstraints(max_length=48), written(subjects.NAME.pattern, subjects.NAME_FORM)]
UNMAPPED = frozenset({subjects.START, subjects.TOOL_RESULT})
"""Types of relayed events that are read without a mapping."""
Pointer = Annotated[str, written(r"(/([^/~]|~[01])*)*", "a JSON pointer, such as /issue/title")]
"""RFC 6901; an empty one is the whole document."""
Limit = Literal["max_steps", "max_tokens", "max_cost_usd", "max_reframes", "deadline_at"]
Template = Annotated[str, StringConstraints(min_length=1)]
"""Text in which `{/pointer}` stands for the value at this JSON pointer."""
FIELDS = {
    "agentic.start": ({"goal"}, {"context"}),
    "agentic.tool_result": ({"run_id", "step", "tool"}, {"attempt", "capability", "status", "result", "error"}),
    "agentic.signal": (
        {"run_id", "kind"},
        {"message", "trusted", "step", "arguments_hash", "outcome", "constraints"},
    ),
    "agentic.cancel": ({"run_id"}, {"reason"}),
}
"""Required and optional fields of a mapping, by its `to`."""
FOR_KIND = {"approve": {"arguments_hash"}, "answer": {"message"}, "message": {"message"}}


class EventMapping(Section):
    to: Literal["agentic.start", "agentic.tool_result", "agentic.signal", "agentic.cancel"]
    goal: Template | None = None
    context: dict[str, Pointer] = Field(default_factory=dict)
    run_id: Pointer | None = None
    step: Pointer | None = None
    tool: Pointer | None = None
    attempt: Pointer | None = None
    capability: Pointer | None = None
    status: Pointer | None = None
    result: Pointer | None = ""
    error: Pointer | None = None
    kind: Literal["message", "answer", "approve", "reject", "resume"] | None = None
    message: Template | None = None
    trusted: bool = False
    arguments_hash: Pointer | None = None
    outcome: Pointer | None = None
    constraints: dict[Limit, Pointer] = Field(default_factory=dict)
    reason: Template | None = None

    @model_validator(mode="after")
    def _says_enough(self) -> Self:
        needed, possible = FIELDS[self.to]
        needed = needed | FOR_KIND.get(self.kind or "", set())
        given = {name for name in self.model_fields_set - {"to"} if getattr(self, name) is not None}
        if missing := needed - given:
            raise ValueError(f"{self.kind or self.to} needs {min(missing)}")
        if unknown := given - needed - possible:
            raise ValueError(f"{self.to} takes no {min(unknown)}")
        return self


class KeySettings(Section):
    id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    secret: SigningSecret
    until: Instant | None = None


class _SenderSettings(Section):
    keys: Annotated[tuple[KeySettings, ...], Field(min_length=1)]

    def keys_at(self, now: datetime, key_id: str = "") -> tuple[bytes, ...]:
        """Keys that are valid now, of this id if one is given."""
        valid = [key for key in self.keys if (key.until is None or now < key.until) and key_id in ("", key.id)]
        return tuple(self._bytes(key.secret.get_secret_value()) for key in valid)

    def _bytes(self, secret: str) -> bytes:
        return secret.encode()


class PeerSettings(_SenderSettings):
    accept: Annotated[tuple[EventType, ...], Field(min_length=1)]
    events: dict[EventType, EventMapping] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_every_mapping_used(self) -> Self:
        if idle := self.events.keys() - (set(self.accept) - UNMAPPED):
            raise ValueError(f"the mapping of {min(idle)} is never used: accept it, and map no type that needs none")
        return self


class WebhookSettings(_SenderSettings):
    scheme: Literal["ductile", "github", "standard"]
    signature_header: str = "X-Ductile-Signature-256"
    delivery_id: Pointer | None = None
    events: Annotated[dict[str, EventMapping], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        for key in self.keys:  # raises ValueError
            self._bytes(key.secret.get_secret_value())
        for name, mapping in self.events.items():
            if not mapping.trusted and (mapping.outcome is not None or mapping.constraints):
                raise ValueError(
                    f"{name}: an outcome and constraints are trusted: say `trusted: true` where "
                    "only your own people do, or map neither"
                )
        return self

    def _bytes(self, secret: str) -> bytes:
        return standard_key(secret) if self.scheme == "standard" else super()._bytes(secret)


class IngressSettings(ServerSettings):
    port: Port = 8710
    peers: dict[IngressPeerName, PeerSettings] = Field(default_factory=dict)
    webhooks: dict[WebhookName, WebhookSettings] = Field(default_factory=dict)
    max_body_bytes: Annotated[int, Field(ge=1024, le=4 * 1024 * 1024)] = 256 * 1024

    @model_validator(mode="after")
    def _has_unique_names(self) -> Self:
        if both := self.peers.keys() & self.webhooks.keys():
            raise ValueError(f"a peer and a webhook share the name {min(both)}: give one of them another")
        return self


Milestone = Literal[
    "agent.completed", "agent.escalated", "agent.failed", "agent.cancelled", "agent.waiting", "agent.reopened"
]
RunEvent = Literal[Milestone, "agent.progress"]
MILESTONES: tuple[RunEvent, ...] = get_args(Milestone)
"""Types that are sent by default: a run ends, waits for a person, or is reopened by one."""


def _address(url: str) -> str:
    if not is_address(url, "http", "https"):
        raise unfit("is no address, such as https://host.example:8443/path")
    return url


ADDRESS_FORM = "http://HOST or https://HOST, perhaps with a path, and without a login"
Address = Annotated[str, StringConstraints(max_length=2048)]
WebUrl = Annotated[Address, written(r"https?://[^\s/?#@\\]+([/?#]\S*)?", ADDRESS_FORM), AfterValidator(_address)]
RelayUrl = Annotated[Address, written(r"https?://[^\s/?#@\\]+(/[^\s?#]*)?", ADDRESS_FORM), AfterValidator(_address)]
HostName = Annotated[str, StringConstraints(to_lower=True)]
RemotePort = Annotated[int, Field(ge=1, le=65535)]


def _webhook_secret(secret: SecretStr) -> SecretStr:
    try:
        standard_key(secret.get_secret_value())
    except ValueError as error:
        raise unfit(str(error)) from None
    return secret


WebhookSecret = Annotated[Secret, AfterValidator(_webhook_secret)]


class RelaySettings(RelayPeerSettings):
    url: RelayUrl
    types: tuple[RunEvent, ...] = MILESTONES


class NetworkSettings(Section):
    """Default: public addresses by HTTPS."""

    allow_private: bool = False
    allow_http: bool = False
    ports: tuple[RemotePort, ...] = ()
    hosts: tuple[HostName, ...] = ()


class ReceiverSettings(Section):
    """Callbacks that runs ask for, or a subscription. Without a secret nothing is sent: its receiver could not verify
    the sender."""

    secret: WebhookSecret | None = None
    previous_secret: WebhookSecret | None = None
    network: NetworkSettings = NetworkSettings.model_construct()

    def keys(self) -> tuple[bytes, ...]:
        return tuple(standard_key(secret) for secret in self.secrets())


class SubscriptionSettings(ReceiverSettings):
    url: WebUrl
    secret: WebhookSecret
    types: tuple[RunEvent, ...] = MILESTONES


class OutboundSettings(Section):
    agent_keys: tuple[PublicKey, ...] = ()
    relay: RelaySettings | None = None
    relays: dict[DuctileName, RelaySettings] = Field(default_factory=dict)
    callbacks: ReceiverSettings = ReceiverSettings.model_construct()
    subscriptions: dict[ToolName, SubscriptionSettings] = Field(default_factory=dict)
    timeout_s: Annotated[float, Field(gt=0, le=120)] = 20.0

    def wants_progress(self) -> bool:
        return any("agent.progress" in one.types for one in self.receivers().values())

    def receivers(self) -> Mapping[str, RelaySettings | SubscriptionSettings]:
        """Receivers of the runs' events by target, which is `relay`, `relay:NAME` or `subscription:NAME`."""
        relays = ({"relay": self.relay} if self.relay else {}) | {
            f"relay:{name}": one for name, one in self.relays.items()
        }
        return relays | {f"subscription:{name}": one for name, one in self.subscriptions.items()}
