"""Seals: by a key that lies outside the store, each run's row says that the agent wrote it, and all that is beside it.

A seal is an HMAC-SHA256 over the row (run, entry, status, timer, summary, head of the journal, state) and digests of
what is stored apart from it: the brief, and the items of the growing fields. Whoever changes, swaps or sets back any of
that without the key is found when the run is loaded next. Of the journal the head is sealed, to which its hashes lead.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_service.errors import Changed
from agent_service.journal import Entry, flaw_in_chain
from agent_service.tombstones import Tombstone
from groundwork.service.key_ring import KeyRing

PURPOSE, OF_GRAVES = "seal", "tombstone"
REMEMBERED_RUNS = 4096
LONGEST_KEY_ID = 40

UNSEALED = "its row has no seal, and this agent seals all"
NOT_ITS_SEAL = "its row, its brief or what it remembers was changed by other hands: the seal does not fit"
STRANGE_KEY = "its row is sealed with the key {key}, which the keys file does not hold"


@dataclass(frozen=True, slots=True)
class Chain:
    """Digests of the items of one field, in their order, and one of all of them."""

    items: tuple[bytes, ...] = ()
    whole: bytes = bytes(32)

    def grown(self, dropped: int, added: Iterable[bytes]) -> "Chain":
        """Without its `dropped` oldest items, and with the digests `added`."""
        chain = Chain() if dropped else self
        new = (*(self.items[dropped:] if dropped else ()), *added)
        whole = chain.whole
        for digest in new:
            whole = hashlib.sha256(whole + digest).digest()
        return Chain((*chain.items, *new), whole)


@dataclass(frozen=True, slots=True)
class Apart:
    """Digests of what is stored beside a run's row."""

    brief: bytes = b""
    fields: Mapping[str, Chain] = field(default_factory=dict)

    def with_brief(self, brief: str) -> "Apart":
        return replace(self, brief=digest_of(brief.encode()))

    def with_items(self, name: str, dropped: int, added: Iterable[bytes]) -> "Apart":
        """`added`: the items as they are stored."""
        chain = self.fields.get(name, Chain()).grown(dropped, map(digest_of, added))
        return replace(self, fields={**self.fields, name: chain})

    def whole(self) -> bytes:
        """The digests of all that there is."""
        fields = ((name, chain) for name, chain in sorted(self.fields.items()) if chain.items)
        return self.brief + b"".join(name.encode() + b"\n" + chain.whole for name, chain in fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What of a run's row is sealed, as it is stored."""

    run_id: str
    seq: int
    status: str
    due_at: int | None
    summary: str
    head: bytes
    state: bytes

    def text(self, apart: Apart) -> bytes:
        """One form for each row, and no two rows have the same."""
        summary, beside = self.summary.encode(errors="replace"), apart.whole()
        sizes = f"{self.run_id}\n{self.seq}\n{self.status}\n{self.due_at}\n{len(summary)}\n{len(beside)}\n"
        return b"".join((sizes.encode(errors="replace"), self.head, summary, beside, self.state))


@dataclass(frozen=True, slots=True)
class Sealed:
    """A row with what is beside it, and its seal; None where nothing is sealed."""

    row: Row
    apart: Apart
    seal: str | None = None


class Seals:
    """Makes and checks them, and remembers of live runs what is stored beside their rows."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._known: OrderedDict[str, tuple[int, bytes, Apart]] = OrderedDict()

    @property
    def newest(self) -> str:
        """The id of the key that seals."""
        return self._ring.keys[0].id

    def seal(self, row: Row, apart: Apart) -> str:
        """`<id of the key>.<hex>`."""
        key = self._ring.keys[0]
        return f"{key.id}.{key.digest(PURPOSE, row.text(apart)).hex()}"

    def strange(self, seal: str) -> str:
        """The id of the key of a seal, if the ring has it not; else empty."""
        name = seal.partition(".")[0][:LONGEST_KEY_ID]
        return "" if name in {key.id for key in self._ring.keys} else name

    def check(self, seal: str | None, row: Row, apart: Apart) -> None:
        """Raises Changed for a row that is not as the agent left it."""
        if not seal:
            raise Changed(row.run_id, UNSEALED)
        if strange := self.strange(seal):
            raise Changed(row.run_id, STRANGE_KEY.format(key=strange))
        name, _, found = seal.partition(".")
        key = next(key for key in self._ring.keys if key.id == name)
        made = key.digest(PURPOSE, row.text(apart)).hex()
        if not hmac.compare_digest(made.encode(), found.encode(errors="surrogatepass")):
            raise Changed(row.run_id, NOT_ITS_SEAL)

    def bury(self, tombstone: Tombstone) -> str:
        """The seal of a tombstone: `<id of the key>.<text>`."""
        return self._ring.mac(OF_GRAVES, *tombstone.parts())

    def fits(self, tombstone: Tombstone) -> bool:
        """Whether it is as the agent left it."""
        return self._ring.checks(tombstone.seal or "", OF_GRAVES, *tombstone.parts())

    def remember(self, row: Row, apart: Apart) -> None:
        """What is beside a row that is as the agent left it; older news of it is none, and ended runs are forgotten."""
        if row.run_id in self._known and self._known[row.run_id][0] > row.seq:
            return
        self._known[row.run_id] = row.seq, row.head, apart
        if len(self._known) > REMEMBERED_RUNS:
            self._known.popitem(last=False)

    def take(self, run_id: str, seq: int) -> Apart | None:
        """What is beside the row of entry `seq`, where that is known. It is forgotten: what follows is remembered."""
        known, _, apart = self._known.pop(run_id, (0, b"", None))
        return apart if known == seq else None

    def forget(self, run_id: str) -> None:
        """Another has moved the run on."""
        self._known.pop(run_id, None)

    def head(self, run_id: str) -> tuple[int, bytes] | None:
        """The newest entry of a run and its hash, where the agent knows them by itself."""
        return self._known[run_id][:2] if run_id in self._known else None


def digest_of(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def apart_of(brief: bytes, items: Iterable[tuple[Any, ...]]) -> Apart:
    """Of what was read: the brief, and `(field, item)` in their order."""
    fields: dict[str, list[bytes]] = {}
    for name, item in items:
        fields.setdefault(name, []).append(item)
    apart = Apart(brief=digest_of(brief))
    for name, grown in fields.items():
        apart = apart.with_items(name, 0, grown)
    return apart


def flaw_in_journal(entries: Sequence[Entry], after: int, limit: int | None, head: tuple[int, str]) -> str | None:
    """What is wrong with the entries of a run `after` one, at most `limit`, by its `head`: the newest entry and its
    hash."""
    newest, its_hash = head
    there = newest - after if limit is None else min(limit, newest - after)
    if flaw := flaw_in_chain(entries, after=after):
        return flaw
    if len(entries) < there:
        return f"entry {after + len(entries) + 1} is missing"
    if any(entry.seq == newest and entry.hash != its_hash for entry in entries):
        return f"entry {newest} is not the one that the agent wrote"
    return None
