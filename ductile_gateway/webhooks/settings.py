"""Settings of events from outside (`gateway.ingress`) and of what others are told (`gateway.outbound`)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator

from ductile_gateway.ductile.settings import DuctileName, RelayPeerSettings
from ductile_gateway.webhooks.signatures import standard_key
from groundwork.service.config_file import Section
from groundwork.service.secret import Secret, SigningSecret, unfit
from schemas import subjects
from schemas.fields import Instant, ToolName
from schemas.signing import PublicKey

PeerName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$", max_length=48)]
WebhookName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,47}$")]
EventType = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(?:[._-][a-z0-9]+)*$", max_length=128)]


BY_THEMSELVES = frozenset({subjects.START, subjects.TOOL_RESULT})
"""Types of relayed events that are taken for what they say they are."""
Pointer = Annotated[str, StringConstraints(pattern=r"^(/([^/~]|~[01])*)*$")]
"""A place in a JSON document (RFC 6901), such as `/issue/title`; an empty one is the whole document."""
Limit = Literal["max_steps", "max_tokens", "max_cost_usd", "max_reframes", "deadline_at"]
Template = Annotated[str, StringConstraints(min_length=1)]
"""Text in which `{/place}` stands for what the event has at this place (a JSON pointer)."""


FIELDS = {
    "agentic.start": ({"goal"}, {"context"}),
    "agentic.tool_result": ({"run_id", "step", "tool"}, {"attempt", "capability", "status", "result", "error"}),
    "agentic.signal": (
        {"run_id", "kind"},
        {"message", "trusted", "step", "arguments_hash", "outcome", "constraints"},
    ),
    "agentic.cancel": ({"run_id"}, {"reason"}),
}
"""What a mapping needs, and what it may say besides, by what comes of it."""
FOR_KIND = {"approve": {"arguments_hash"}, "answer": {"message"}, "message": {"message"}}


class EventMapping(Section):
    """What becomes of an event, with the place in it of each field that is needed."""

    to: Literal["agentic.start", "agentic.tool_result", "agentic.signal", "agentic.cancel"]
    """The event that comes of it: begin a run, answer a tool request, speak to a run, or stop it."""
    goal: Template | None = None
    """What the run is to reach; `{/place}` stands for what the event has there."""
    context: dict[str, Pointer] = Field(default_factory=dict)
    """What the agent is told besides, by name, each with its place in the event."""
    run_id: Pointer | None = None
    """The place of the run's id."""
    step: Pointer | None = None
    """The place of the step's number: of a ruling too, which is refused then where the run asks of another step."""
    tool: Pointer | None = None
    """The place of the tool's name."""
    attempt: Pointer | None = None
    """The place of the attempt's number; without it, the attempt that is pending."""
    capability: Pointer | None = None
    """The place of what the request was proved with: without it the agent takes no result of a tool of this gateway."""
    status: Pointer | None = None
    """The place of `ok`, `error` or `continuation`; without it, `ok`."""
    result: Pointer | None = ""
    """The place of what the tool brought; by default the whole event."""
    error: Pointer | None = None
    """The place of what went wrong, needed where `status` may say `error`."""
    kind: Literal["message", "answer", "approve", "reject", "resume"] | None = None
    """What a signal says; an `answer` is to a question, or to an escalation, which it reopens. To map `approve` is to
    let a signer here approve what runs ask for."""
    message: Template | None = None
    """The words: the answer, or why something is rejected; `{/place}` stands for what the event has there."""
    trusted: bool = False
    """Whether only people of the house write what a webhook fills in: else `message` counts as a stranger's, and
    neither an `outcome` nor `constraints` may be mapped."""
    arguments_hash: Pointer | None = None
    """The place of the hash that `agent.waiting` told; needed to approve."""
    outcome: Pointer | None = None
    """The place of `ran`, `did_not_run` or `look`, in an answer about a write in doubt."""
    constraints: dict[Limit, Pointer] = Field(default_factory=dict)
    """Limits that an answer raises, each with its place."""
    reason: Template | None = None
    """Why a run is stopped; `{/place}` stands for what the event has there."""

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
    """A shared secret. While a secret is changed there are two of them."""

    id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """What the sender calls it (`key_id` of Ductile); a webhook needs none."""
    secret: SigningSecret
    """At least 16 characters; for a Standard Webhook `whsec_` and base64."""
    until: Instant | None = None
    """From when on nothing that it signs is taken any more, such as 2026-12-24T18:00:00Z: of an old one, while a sender
    changes over."""


class _Sender(Section):
    keys: Annotated[tuple[KeySettings, ...], Field(min_length=1)]
    """The secrets that it may sign with."""

    def secrets(self, now: datetime, key_id: str = "") -> tuple[bytes, ...]:
        """Those that hold now, by this name if one is given. Raises ValueError for one whose file was changed to
        something unfit."""
        held = [key for key in self.keys if (key.until is None or now < key.until) and key_id in ("", key.id)]
        return tuple(self._bytes(key.secret.get_secret_value()) for key in held)

    def _bytes(self, secret: str) -> bytes:
        return secret.encode()


class PeerSettings(_Sender):
    """A Ductile that relays events here; its name is its `service.name`."""

    accept: Annotated[tuple[EventType, ...], Field(min_length=1)]
    """The event types that are taken. `agentic.start` and `agentic.tool_result` need no mapping."""
    events: dict[EventType, EventMapping] = Field(default_factory=dict)
    """What becomes of other types; without a mapping, an event whose baggage has `run_id`, `step`, `tool` and
    `capability` answers that step."""

    @model_validator(mode="after")
    def _every_mapping_counts(self) -> Self:
        if idle := self.events.keys() - (set(self.accept) - BY_THEMSELVES):
            raise ValueError(f"the mapping of {min(idle)} is never used: accept it, and map no type that needs none")
        return self


class WebhookSettings(_Sender):
    """An address that others post to; its name is the last part of the path `/webhooks/NAME`."""

    scheme: Literal["ductile", "github", "standard"]
    """How its sender signs: Ductile's webhooks, GitHub's, or Standard Webhooks. The first two sign no time and no name
    of the delivery, so the same body is taken only once, until it is forgotten."""
    signature_header: str = "X-Ductile-Signature-256"
    """Where the signature is, for the scheme `ductile`."""
    delivery_id: Pointer | None = None
    """The place of the delivery's own id in the body, for the scheme `ductile`; without it, the digest of the body."""
    events: Annotated[dict[str, EventMapping], Field(min_length=1)]
    """What becomes of an event, by its type (of GitHub also with its action, such as `issues.opened`); `*` is any other
    type. GitHub names the type in a header that it does not sign: a body of another type is refused, as far as types
    are known here."""

    @model_validator(mode="after")
    def _safe(self) -> Self:
        for key in self.keys:
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


class IngressSettings(Section):
    """Where events are taken from outside. Without peers and webhooks nothing listens."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8710
    """The port to listen on; 0 for any."""
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    """Host headers that are answered."""
    peers: dict[PeerName, PeerSettings] = Field(default_factory=dict)
    """Ductiles that relay events here, by their `service.name`."""
    webhooks: dict[WebhookName, WebhookSettings] = Field(default_factory=dict)
    """Webhooks, by name."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=4 * 1024 * 1024)] = 256 * 1024
    """The largest body that is read, in bytes."""

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        if both := self.peers.keys() & self.webhooks.keys():
            raise ValueError(f"a peer and a webhook share the name {min(both)}: give one of them another")
        return self

    def listens(self) -> bool:
        return bool(self.peers or self.webhooks)

    def secrets(self) -> tuple[str, ...]:
        senders: tuple[_Sender, ...] = (*self.peers.values(), *self.webhooks.values())
        return tuple(key.secret.get_secret_value() for sender in senders for key in sender.keys)


Milestone = Literal[
    "agent.completed", "agent.escalated", "agent.failed", "agent.cancelled", "agent.waiting", "agent.reopened"
]
RunEvent = Literal[Milestone, "agent.progress"]
MILESTONES: tuple[RunEvent, ...] = get_args(Milestone)
"""What is told where nothing else is chosen: a run ends, pauses, waits for a person, or is set going again by one."""

WebUrl = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@\\]+([/?#]\S*)?$", max_length=2048)]
RelayUrl = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@\\]+/?$", max_length=2048)]
HostName = Annotated[str, StringConstraints(to_lower=True)]
Port = Annotated[int, Field(ge=1, le=65535)]


def _webhook_secret(secret: SecretStr) -> SecretStr:
    try:
        standard_key(secret.get_secret_value())
    except ValueError as error:
        raise unfit(str(error)) from None
    return secret


WebhookSecret = Annotated[Secret, AfterValidator(_webhook_secret)]


class RelaySettings(RelayPeerSettings):
    """Ductile's relay ingress."""

    url: RelayUrl
    """Where Ductile's API listens, such as http://127.0.0.1:8080."""
    types: tuple[RunEvent, ...] = MILESTONES
    """What is relayed."""


class NetworkSettings(Section):
    """Where a callback may go. Without a change: to public addresses, by HTTPS."""

    allow_private: bool = False
    """Also to loopback and private addresses. Link-local ones, where clouds keep their secrets, stay refused."""
    allow_http: bool = False
    """Also without TLS."""
    ports: tuple[Port, ...] = ()
    """Ports besides 443 and 80."""
    hosts: tuple[HostName, ...] = ()
    """The only host names; without any, all."""


class _SignedSection(Section):
    secret: WebhookSecret | None = None
    """Signs what is sent (Standard Webhooks, `whsec_…`); `secret_file` reads it from a file."""
    previous_secret: WebhookSecret | None = None
    """Signs it too, while receivers change over."""
    network: NetworkSettings = NetworkSettings.model_construct()

    def secrets(self) -> tuple[str, ...]:
        return tuple(one.get_secret_value() for one in (self.secret, self.previous_secret) if one is not None)

    def keys(self) -> tuple[bytes, ...]:
        """Raises ValueError for a secret in a file that was changed meanwhile."""
        return tuple(standard_key(secret) for secret in self.secrets())


class CallbackSettings(_SignedSection):
    """The callback that a run asks for. Without a secret it is not sent: its receiver could not tell the sender."""


class SubscriptionSettings(_SignedSection):
    """One receiver of events of all runs."""

    url: WebUrl
    secret: WebhookSecret
    """Signs what it is sent (Standard Webhooks, `whsec_…`); `secret_file` reads it from a file."""
    types: tuple[RunEvent, ...] = MILESTONES
    """What it is sent."""


class OutboundSettings(Section):
    """Who is told of what becomes of runs."""

    agent_keys: tuple[PublicKey, ...] = ()
    """The public keys of the agent whose word is passed on, as `agentic keys list` shows them. Without any, the gateway
    trusts those that the agent told when it was first asked, and pins them."""
    relay: RelaySettings | None = None
    relays: dict[DuctileName, RelaySettings] = Field(default_factory=dict)
    """The relay ingress of further Ductiles, by their names."""
    callbacks: CallbackSettings = CallbackSettings.model_construct()
    subscriptions: dict[ToolName, SubscriptionSettings] = Field(default_factory=dict)
    """Receivers by a name for the log and the dead letters."""
    timeout_s: Annotated[float, Field(gt=0, le=120)] = 20.0
    """How long a receiver may take to answer, in seconds."""

    def wants_progress(self) -> bool:
        types = [one.types for one in self.every_relay().values()] + [one.types for one in self.subscriptions.values()]
        return any("agent.progress" in one for one in types)

    def every_relay(self) -> Mapping[str, RelaySettings]:
        """By the name of the Ductile; the one that needs none has the empty one."""
        return ({"": self.relay} if self.relay else {}) | self.relays

    def secrets(self) -> tuple[str, ...]:
        signed = (secret for one in (self.callbacks, *self.subscriptions.values()) for secret in one.secrets())
        return (*(relay.secret.get_secret_value() for relay in self.every_relay().values()), *signed)
