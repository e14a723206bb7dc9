"""Anchors: how far a store had come, said outside of it, so that one that was set back or cut is known. Pure.

A seal tells that a row was written by the agent, not that it is the newest there was. An anchor does: the newest entry
of all runs, and how many runs there were. It is kept beside the keys and on the bus, and compared at the start.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Self

from pydantic import TypeAdapter

from groundwork.service.key_ring import KeyRing

PURPOSE, HEAD = "anchor", "head"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a store has come: the position of its newest entry with its hash in hex, and the number of its runs.

    `missing`: by how many entries its runs have fewer than there are positions. None, unless a person has taken a store
    as it was: each entry takes the next position, and its run one version further.
    """

    position: int = 0
    head: str = ""
    runs: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A standing of the store with the id `store`, at an instant (ISO 8601). `mac`: the agent said so."""

    store: str
    position: int
    head: str
    runs: int
    missing: int = 0
    at: str
    mac: str = ""

    @classmethod
    def made(cls, store: str, standing: Standing, at: datetime, ring: KeyRing) -> Self:
        made = cls(store=store, **asdict(standing), at=at.isoformat(timespec="seconds"))
        return cls(**asdict(made) | {"mac": ring.mac(PURPOSE, *made._parts())})

    def is_of(self, store: str, ring: KeyRing) -> bool:
        """Whether the agent has said it, with a key of the ring, of that store."""
        return self.store == store and ring.checks(self.mac, PURPOSE, *self._parts())

    def contradicted_by(self, now: Standing, head_then: str, *, is_gone: bool = False) -> str:
        """What of it is not there any more; `head_then` is the hash that stands at its position now. Empty if all is.

        Entries and runs are only ever added: those that are kept no longer count for ever. `is_gone`: the entry at its
        position went with its run.
        """
        if now.position < self.position:
            return f"it had {self.position} entries at {self.at} and has {now.position}: it was set back, or cut"
        if head_then != self.head and not is_gone:
            return f"its entry {self.position} is not the one of {self.at}: it was set back, or written anew"
        if now.runs < self.runs:
            return f"it had {self.runs} runs at {self.at} and has {now.runs}: some were removed"
        if now.missing != self.missing:
            return f"its runs lack {now.missing - self.missing} of its entries: some were set back, or removed"
        return ""

    def _parts(self) -> tuple[str, ...]:
        return self.store, str(self.position), self.head, str(self.runs), str(self.missing), self.at


ANCHOR = TypeAdapter(Anchor)


def head_told(ring: KeyRing, run_id: str, seq: int, head: str) -> str:
    """What the end of a run says beside it: its newest entry then, the hash of that, and who says so."""
    return f"{seq}.{head}.{ring.mac(HEAD, run_id, str(seq), head)}"


def head_heard(ring: KeyRing, run_id: str, told: str) -> tuple[int, str] | None:
    """The entry and its hash, if the agent has told them."""
    seq, _, rest = told.partition(".")
    head, _, mac = rest.partition(".")
    if not ring.checks(mac, HEAD, run_id, seq, head):
        return None
    return int(seq), head
