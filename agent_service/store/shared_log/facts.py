"""Facts in the log of a shared store, as JSON: one fact is one commit, whole.

A fact is never changed. An older agent must do without an added field; else VERSION is raised, and older agents leave
the run to those who know it. Texts are those of rows, byte for byte, because hashes are over them. Instants are µs
since 1970 UTC; hashes are hex digits.
"""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_service.archive.retention import Tombstone
from agent_service.core.waiting import Status
from agent_service.run.journal import RULES, Entry
from agent_service.run.ports import Dismissal
from agent_service.store.retention import row_of
from agent_service.store.rows import Asked, Mark, Rows
from groundwork.sqlite.file import instant, microseconds
from schemas import subjects
from schemas.fields import flaws_of
from schemas.status import Halt

VERSION = 1
RULES_BELOW = 1000

Whole = Annotated[int, Field(ge=0, lt=2**63)]
Instant = Annotated[int, Field(ge=0, le=253_402_300_799_999_999)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Poisoned(ValueError):
    """No agent wrote it: the text says what is wrong."""


class Newer(ValueError):
    """A newer version of the agent wrote it. `level` is how new: 0 says nothing."""

    def __init__(self, level: int, run_id: str) -> None:
        super().__init__("a newer version of the agent wrote it")
        self.level = level
        self.run_id = run_id


class _Said(BaseModel):
    """The version of a fact's shape, and the message under which it was written (empty: under none)."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    v: Whole
    by: str

    def encoded(self) -> bytes:
        return self.model_dump_json(exclude_defaults=True).encode()


class Asking(BaseModel):
    model_config = _Said.model_config

    wake_id: str
    digest: str
    accepted_at: Instant


class EntryFact(_Said):
    """An entry of a run, and what it leaves of it: the row, and how what lies beside it has changed."""

    run_id: str
    seq: Annotated[int, Field(ge=1, lt=2**63)]
    caller: str = ""
    status: Status
    summary: str
    due_at: Instant | None = None
    state: str
    at: Instant
    kind: str
    event: str
    facts: str
    previous: Hash
    hash: Hash
    goal: str = ""
    brief: str | None = None
    dropped: tuple[tuple[str, Whole], ...] = ()
    added: tuple[tuple[str, str], ...] = ()
    spent: tuple[str, str, float, Whole] | None = None
    opened: tuple[str, int] | None = None
    told: Whole = 0
    """All is known to be done that entries up to this one ask for."""
    asking: Asking | None = None

    @classmethod
    def of(
        cls,
        rows: Rows,
        *,
        by: str,
        caller: str = "",
        told: int = 0,
        asked: Asked | None = None,
    ) -> Self:
        """A commit as a fact; `asked` is that of the first entry of a run."""
        status, seq, head, summary, at, due_at, state, run_id, *_ = rows.run
        _, _, _, kind, event, facts, previous, _ = rows.entry
        brief: dict[str, Any] = {"goal": rows.brief[1], "brief": rows.brief[2]} if rows.brief else {}
        asking = dict(zip(Asking.model_fields, asked, strict=True)) if asked else None
        return cls(
            v=VERSION,
            by=by,
            run_id=run_id,
            seq=seq,
            caller=caller,
            status=Status(status),
            summary=summary,
            due_at=due_at,
            state=state,
            at=at,
            kind=kind,
            event=event,
            facts=facts,
            previous=previous.hex(),
            hash=head.hex(),
            dropped=tuple((field, count) for _, field, count in rows.dropped),
            added=tuple((field, item) for _, field, item in rows.added),
            spent=rows.spent,
            opened=rows.opened,
            told=told,
            asking=Asking(**asking) if asking else None,
            **brief,
        )

    @property
    def subject(self) -> str:
        return subjects.stored_wake(self.asking.wake_id) if self.asking else subjects.stored_run(self.run_id)

    @property
    def asked(self) -> Asked | None:
        return (self.asking.wake_id, self.asking.digest, self.asking.accepted_at) if self.asking else None

    @property
    def paid_usd(self) -> float:
        return self.spent[2] if self.spent else 0.0

    @property
    def level(self) -> int:
        """How new its writer is: grows with the version of facts, and with that of the rules it was decided by."""
        return self.v * RULES_BELOW + min(self.entry().rules, RULES_BELOW - 1)

    def entry(self) -> Entry:
        return Entry(
            run_id=self.run_id,
            seq=self.seq,
            at=instant(self.at),
            kind=self.kind,
            event=self.event,
            facts=self.facts,
            previous=self.previous,
            hash=self.hash,
        )

    def mark(self, position: int) -> Mark:
        return Mark(by=self.by, position=position)

    def rows(self) -> Rows:
        head, previous = bytes.fromhex(self.hash), bytes.fromhex(self.previous)
        state, run_id = self.state, self.run_id
        return Rows(
            run=(self.status.value, self.seq, head, self.summary, self.at, self.due_at, state, run_id, self.told),
            brief=None if self.brief is None else (run_id, self.goal, self.brief),
            entry=(run_id, self.seq, self.at, self.kind, self.event, self.facts, previous, head),
            dropped=tuple((run_id, field, count) for field, count in self.dropped),
            added=tuple((run_id, field, item) for field, item in self.added),
            spent=self.spent,
            opened=self.opened,
        )


class HaltFact(_Said):
    halt: Halt


class SeenFact(_Said):
    run_id: str
    version: Whole
    person: str
    at: Instant

    @classmethod
    def of(cls, dismissal: Dismissal, *, by: str) -> Self:
        at = microseconds(dismissal.at)
        return cls(v=VERSION, by=by, run_id=dismissal.run_id, version=dismissal.version, person=dismissal.by, at=at)


class Buried(BaseModel):
    """A tombstone, and the artifacts of its run as JSON: their contents are to be removed."""

    model_config = _Said.model_config

    run_id: str
    wake_id: str
    wake_digest: str
    status: Status
    last: Whole
    ended_at: Instant
    at: Instant
    rule: str
    artifacts: str = "[]"

    @classmethod
    def of(cls, tombstone: Tombstone, artifacts: str) -> Self:
        told = dict(zip(cls.model_fields, row_of(tombstone), strict=False))
        return cls(**{**told, "status": tombstone.status, "artifacts": artifacts})

    def row(self) -> tuple[object, ...]:
        """As it is stored."""
        return tuple((self.model_dump() | {"status": self.status.value}).values())


class GoneFact(_Said):
    """Expired runs: the newest entry and wake id of each. A run with a newer entry stays."""

    runs: dict[str, tuple[Whole, str]]
    tombstones: tuple[Buried, ...] = ()
    artifacts: dict[str, Whole] = {}
    """Runs that stay and of which the artifacts go, with their newest entry; by `rule`, `at` that instant."""
    rule: str = ""
    at: Instant = 0


AnyFact = EntryFact | HaltFact | SeenFact | GoneFact

KNOWN_LEVEL = VERSION * RULES_BELOW + RULES
_ENTRIES = tuple(f"{subjects.STORE}.{of}." for of in ("run", "wake"))
_SHAPES: dict[str, type[AnyFact]] = {
    subjects.STORED_HALT: HaltFact,
    subjects.STORED_GONE: GoneFact,
}


def shape_of(subject: str) -> type[AnyFact] | None:
    """None for subjects that change no runs."""
    if subject.startswith(_ENTRIES):
        return EntryFact
    if subject.startswith(f"{subjects.STORE}.seen."):
        return SeenFact
    return _SHAPES.get(subject)


def run_named_by(subject: str) -> str:
    return subject.removeprefix(subjects.stored_run("")) if subject.startswith(subjects.stored_run("")) else ""


def decoded(shape: type[AnyFact], subject: str, body: bytes) -> AnyFact:
    """The fact. Raises Newer, and Poisoned for one that is none or lies on a subject of others."""
    try:
        fact = shape.model_validate_json(body)
    except ValidationError as error:
        raise _unreadable(subject, body, error) from error
    level = fact.level if isinstance(fact, EntryFact) else fact.v * RULES_BELOW
    if level > KNOWN_LEVEL:
        raise Newer(level, fact.run_id if isinstance(fact, EntryFact) else "")
    if isinstance(fact, EntryFact):
        _check(fact, subject)
    return fact


def _check(fact: EntryFact, subject: str) -> None:
    if fact.subject != subject:
        raise Poisoned(f"it is of run {fact.run_id} and lies on {subject}")
    if fact.entry().recomputed_hash() != fact.hash:
        raise Poisoned("its hash is not that of its entry")


class _Envelope(BaseModel):
    """As much of a fact as every version can read."""

    v: Whole
    run_id: str = ""


def _unreadable(subject: str, body: bytes, error: ValidationError) -> Newer | Poisoned:
    try:
        envelope = _Envelope.model_validate_json(body)
    except ValidationError:
        envelope = _Envelope(v=0)
    if envelope.v > VERSION:
        return Newer(envelope.v * RULES_BELOW, envelope.run_id)
    return Poisoned(f"it cannot be read: {flaws_of(error, whole=subject, most=1)}")
