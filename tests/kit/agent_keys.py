"""Signs messages with an agent's keys, for tests that speak in an agent's place."""

from dataclasses import dataclass
from typing import Any

from groundwork.service.keys import public_of, signature
from schemas import envelope as headers
from schemas import signing
from schemas.signing import AgentKey


@dataclass(frozen=True)
class Signer:
    id: str

    @property
    def seed(self) -> bytes:
        return self.id.encode().ljust(32, b".")

    @property
    def public(self) -> str:
        return public_of(self.seed)

    def header(self, subject: str, body: bytes) -> str:
        return f"{self.id}.{signature(self.seed, signing.signed_content(subject, body))}"

    def headers(self, subject: str, body: bytes) -> dict[str, str]:
        return {headers.SIGNATURE: self.header(subject, body)}

    def announced(self, *, endorsed_by: "Signer | None" = None, **changed: Any) -> AgentKey:
        by = endorsed_by and {
            "id": endorsed_by.id,
            "signature": signature(endorsed_by.seed, signing.endorsed_content(self.id, self.public)),
        }
        return AgentKey.model_validate({"id": self.id, "public": self.public, "endorsed_by": by} | changed)


AGENT = Signer("agent")
STRANGER = Signer("stranger")
