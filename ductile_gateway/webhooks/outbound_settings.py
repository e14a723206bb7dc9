"""Settings of what the gateway tells others: the section `gateway.outbound` of agentic.yaml."""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, SecretStr, StringConstraints

from ductile_gateway.ductile.settings import DuctileName, RelayPeerSettings
from ductile_gateway.webhooks.signatures import standard_key
from groundwork.service.config_file import Section
from groundwork.service.secret import Secret, unfit
from schemas.fields import ToolName
from schemas.signing import PublicKey

Milestone = Literal[
    "agent.completed", "agent.escalated", "agent.failed", "agent.cancelled", "agent.waiting", "agent.reopened"
]
EventType = Literal[Milestone, "agent.progress"]
MILESTONES: tuple[EventType, ...] = get_args(Milestone)
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
    types: tuple[EventType, ...] = MILESTONES
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
    types: tuple[EventType, ...] = MILESTONES
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
