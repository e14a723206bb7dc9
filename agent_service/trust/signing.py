"""The agent's signature under what it tells of runs, and under requests to write (`schemas.signing`).

Progress is signed only where it is sent on: a signature takes 0.03 ms, and a step reports four times.
"""

from datetime import datetime
from pathlib import Path

from agent_service.run.messages import Publish
from groundwork.service.keys import Key, KeyRing, public_of, signature, verifies
from schemas import subjects
from schemas.signing import AgentKey, AgentKeys, Endorsement, endorsed, header, read_header, signed

PURPOSE = "event"
WANTED = "progress.wanted"
"""The file in the store that says so over a restart."""


class Signing:
    """Signs with the newest key of a ring. `progress`: also that, for of several agents any may be asked to."""

    def __init__(self, ring: KeyRing, store: Path, *, progress: bool = False) -> None:
        self._ring = ring
        self._wanted = store / WANTED
        self.signs_progress = progress or self._wanted.exists()

    def signs(self, effect: Publish) -> bool:
        tells = effect.subject.startswith(subjects.EVENTS) and (self.signs_progress or not effect.rebuildable)
        return tells or effect.changes

    def sign(self, subject: str, body: bytes) -> str:
        key = self._ring.keys[0]
        return header(key.id, signature(key.derived(PURPOSE), signed(subject, body)))

    def made(self, subject: str, body: bytes, value: str | None) -> bool:
        """Whether `value` is the header of that message by any key of the ring."""
        key_id, found = read_header(value) or ("", "")
        key = next((key for key in self._ring.keys if key.id == key_id), None)
        return key is not None and verifies(public_of(key.derived(PURPOSE)), found, signed(subject, body))

    def want_progress(self) -> None:
        if not self.signs_progress:
            self._wanted.touch(mode=0o600)
            self.signs_progress = True

    def public_keys(self) -> AgentKeys:
        """Newest first, each vouched for by the one before it."""
        ring = self._ring.keys
        return AgentKeys(keys=tuple(map(_public, ring, (*ring[1:], None))))


def _public(key: Key, older: Key | None) -> AgentKey:
    public, made_at = public_of(key.derived(PURPOSE)), datetime.fromisoformat(key.made_at)
    if older is None:
        return AgentKey(id=key.id, public=public, made_at=made_at)
    vouched = signature(older.derived(PURPOSE), endorsed(key.id, public))
    return AgentKey(id=key.id, public=public, made_at=made_at, endorsed_by=Endorsement(id=older.id, signature=vouched))
