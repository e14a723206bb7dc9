"""Capabilities, signatures, and the sealed head of a run.

A capability is a MAC over the identity of a request, which the executor returns. The agent signs its events and its
requests to write (`schemas.signing`); progress only where it is forwarded, as a signature takes 0.03 ms.
"""

from contextlib import suppress
from datetime import datetime
from pathlib import Path

from agent_service.core.events import CapabilityCheck
from agent_service.core.state import RunState
from agent_service.run.messages import OutgoingMessage
from groundwork.service.keys import Key, KeyRing, public_of, signature, verifies
from schemas import keys, subjects
from schemas.events import ToolRequest, ToolResult
from schemas.signing import (
    AgentKey,
    AgentKeys,
    Endorsement,
    endorsed_content,
    parse_header,
    signed_content,
)
from schemas.values import dataclass

OF_CAPABILITIES, OF_HEADS = "capability", "head"


@dataclass(slots=True)
class Capabilities:
    ring: KeyRing

    def of_request(self, proves: tuple[str, ...]) -> str:
        return self.ring.keys[0].mac(OF_CAPABILITIES, proves)

    def proves(self, request: ToolRequest) -> bool:
        return bool(request.capability) and self._proves(request.capability or "", request)

    def of_result(
        self, result: ToolResult, given: str | None, state: RunState | None
    ) -> tuple[ToolResult, CapabilityCheck]:
        """Result completed by its capability `given` and without it, and what that capability proves."""
        bare = result.model_copy(update={"capability": None}) if result.capability else result
        if not given:
            return bare, "none"
        for pending in state.pendings if state else ():
            step, tool, attempt = pending.step, pending.action.tool, pending.attempt
            its = {"step": step, "tool": tool, "attempt": attempt, "task": pending.task, "round": pending.round}
            its = {name: value or None for name, value in its.items()}
            if self._proves(given, named := bare.model_copy(update=its)):
                fits = all(getattr(bare, name) in (None, value) for name, value in its.items())
                return (named, "named") if fits else (bare, "another")
        most = state.brief.limits.max_attempts if state else 0
        for attempt in [bare.attempt] if bare.attempt else range(1, most + 1):
            if self._proves(given, named := bare.model_copy(update={"attempt": attempt})):
                return named, "named"
        return bare, "none"

    def _proves(self, given: str, of: ToolRequest | ToolResult) -> bool:
        fields = keys.capability_fields(of.run_id, of.step, of.attempt or 0, of.tool, of.task, of.round)
        return self.ring.checks(given, OF_CAPABILITIES, *fields)


OF_SIGNATURES = "event"
WANTED = "progress.wanted"
"""File in the store that keeps the wish over a restart."""


class Signing:
    """Signs with the newest key. `progress`: also progress events, as any of several agents may be asked for them."""

    def __init__(self, ring: KeyRing, store: Path, *, progress: bool = False) -> None:
        self.ring = ring
        self._wanted = store / WANTED
        self.signs_progress = progress or self._wanted.exists()

    def signs(self, effect: OutgoingMessage) -> bool:
        tells = effect.subject.startswith(subjects.EVENTS) and (self.signs_progress or not effect.rebuildable)
        return tells or effect.changes

    def sign(self, subject: str, body: bytes) -> str:
        key = self.ring.keys[0]
        return f"{key.id}.{signature(key.derived(OF_SIGNATURES), signed_content(subject, body))}"

    def verifies(self, subject: str, body: bytes, value: str | None) -> bool:
        key_id, found = parse_header(value) or ("", "")
        key = next((key for key in self.ring.keys if key.id == key_id), None)
        return key is not None and verifies(public_of(key.derived(OF_SIGNATURES)), found, signed_content(subject, body))

    def want_progress(self) -> None:
        if not self.signs_progress:
            self.signs_progress = True
            with suppress(OSError):  # a full disk: it is wanted again after the next start
                self._wanted.touch(mode=0o600)

    def public_keys(self) -> AgentKeys:
        """Newest first, each endorsed by the key before it."""
        ring = self.ring.keys
        return AgentKeys(keys=tuple(map(_public, ring, (*ring[1:], None))))


def _public(key: Key, older: Key | None) -> AgentKey:
    public, made_at = public_of(key.derived(OF_SIGNATURES)), datetime.fromisoformat(key.made_at)
    if older is None:
        return AgentKey(id=key.id, public=public, made_at=made_at)
    vouched = signature(older.derived(OF_SIGNATURES), endorsed_content(key.id, public))
    return AgentKey(id=key.id, public=public, made_at=made_at, endorsed_by=Endorsement(id=older.id, signature=vouched))


def sealed_head(ring: KeyRing, run_id: str, seq: int, head: str) -> str:
    return f"{seq}.{head}.{ring.keys[0].mac(OF_HEADS, (run_id, str(seq), head))}"


def open_sealed_head(ring: KeyRing, run_id: str, sealed: str) -> tuple[int, str] | None:
    """Entry number and hash; None if no key of the ring sealed it."""
    seq, _, rest = sealed.partition(".")
    head, _, mac = rest.partition(".")
    return (int(seq), head) if ring.checks(mac, OF_HEADS, run_id, seq, head) else None
