"""Formats of the agent's signatures and public keys; no cryptography here.

Every `agent.*` event, and every request for a command of tier `write`, has the header `Agentic-Signature`:
`<key id>.<signature>`, by Ed25519 over the subject, a line feed and the body. The micro endpoint `agentic-loop.keys`
lists the public keys, newest first; each is endorsed by the key before it.
"""

import re
from typing import Annotated

from pydantic import Field, StringConstraints

from schemas import subjects
from schemas.fields import Instant, Wire

_SIGNED = re.compile(r"([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{86})")

KeyId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
PublicKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{43}$")]
"""An Ed25519 public key in base64url without padding."""


class Endorsement(Wire):
    """The signature of `endorsed_content`, by the key of that id."""

    id: KeyId
    signature: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{86}$")]


class AgentKey(Wire):
    """A current or former signing key. `endorsed_by`: the key before it; null for the first."""

    id: KeyId
    public: PublicKey
    made_at: Instant | None = None
    endorsed_by: Endorsement | None = None


class AgentKeys(Wire):
    """The agent's keys, newest first."""

    keys: Annotated[tuple[AgentKey, ...], Field(max_length=64)]


class KeysQuery(Wire):
    """A request for the keys. `progress`: the caller relays progress events, which are signed from then on, too."""

    progress: bool = False


def signed_content(subject: str, body: bytes) -> bytes:
    """The signed bytes of a message."""
    return b"%b\n%b" % (subject.encode(), body)


def endorsed_content(key_id: str, public: str) -> bytes:
    """The signed bytes of an endorsement."""
    return f"{subjects.AGENT_KEYS}\n{key_id}\n{public}".encode()


def parse_header(value: str | None) -> tuple[str, str] | None:
    """Key id and signature; None for a missing or malformed header."""
    found = _SIGNED.fullmatch(value) if value else None
    return (found[1], found[2]) if found else None
