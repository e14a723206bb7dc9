"""Messages of the log that agents share, and the side records that every store and archive has.

The body of an entry's message is the entry with its changes to the run; its header is the run's index row, so lists,
timers and limits read no bodies. A side record is a header without a body. Added fields must be optional for older
agents; otherwise raise VERSION, and older agents leave the run alone. Instants are µs since 1970 UTC, hashes hex.
"""

from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent_service.archive.retention import ArtifactTombstone, NonNegative, Tombstone
from agent_service.core.facts import CallReserved
from agent_service.core.waiting import Status
from agent_service.errors import NewerVersion, Tampered
from agent_service.run.journal import RULES, Commit, Entry, Growth, encode_brief, encode_state
from agent_service.run.ports import CallCharge, Dismissal, call_charge
from agent_service.store.lines import list_columns
from groundwork.nats.publishing import StoredMessage
from groundwork.sqlite.file import microseconds
from schemas import subjects
from schemas.status import Halt
from schemas.values import dataclass

VERSION = 1
RULES_BELOW = 1000
LEVEL = VERSION * RULES_BELOW + RULES
ROW = "Agentic-Row"
GOAL, SUMMARY = 160, 80
"""Characters of them in the index."""
SNAPSHOT_EVERY = 64
"""Entries between two snapshots, so no load reads more than these."""

Instant = Annotated[int, Field(ge=0, le=253_402_300_799_999_999)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryMessage:
    """`by`: the message under which it was committed. `whole`: a snapshot, whose `grown` has every growing item."""

    v: int
    by: str
    entry: Entry
    state: str
    brief: str | None
    grown: tuple[Growth, ...]
    whole: bool = False


_ENTRY = TypeAdapter(EntryMessage)


def message_of(commit: Commit, by: str, *, whole: bool) -> EntryMessage:
    brief = encode_brief(commit.state.brief) if commit.brief or whole else None
    state, grown = encode_state(commit.state), commit.growth
    return EntryMessage(v=VERSION, by=by, entry=commit.entry, state=state, brief=brief, grown=grown, whole=whole)


def encoded(message: EntryMessage) -> bytes:
    return _ENTRY.dump_json(message)


def entry_in(stored: StoredMessage, run_id: str) -> EntryMessage:
    """Raises NewerVersion, and Tampered for a message that no agent wrote."""
    with suppress(ValueError):
        if StoredHeader.model_validate_json(stored.headers.get(ROW, "")).v > LEVEL:
            raise NewerVersion(run_id)
    with suppress(ValueError):
        read = _ENTRY.validate_json(stored.body)
        if read.entry.run_id == run_id and read.entry.recomputed_hash() == read.entry.hash:
            return read
    raise Tampered(run_id, f"what lies at {stored.seq} of the log of all runs")


class StoredHeader(BaseModel):
    """The field that every version has. `v`: the LEVEL of its writer."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", defer_build=True)

    v: NonNegative

    @property
    def text(self) -> str:
        return self.model_dump_json(exclude_defaults=True)

    @property
    def header(self) -> dict[str, str]:
        return {ROW: self.text}


class SideRecord(StoredHeader):
    """A fact beside the journals, under a subject by its kind and the run that it is about, if it is about one."""

    kind: ClassVar[str]

    @property
    def run_id(self) -> str:
        return ""

    @property
    def subject(self) -> str:
        return subjects.stored_beside(self.kind, self.run_id)


Beside = TypeVar("Beside", bound=SideRecord)


class HaltRecord(SideRecord):
    kind = "halt"
    by: str
    halt: Halt


class DismissalRecord(SideRecord):
    kind = "seen"
    dismissal: Dismissal

    @property
    def run_id(self) -> str:
        return self.dismissal.run_id


class TombstoneRecord(SideRecord):
    """A run was deleted. `version`: its newest entry then; `artifacts`: paths whose contents are to be removed."""

    kind = "gone"
    stone: Tombstone
    version: NonNegative
    artifacts: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        return self.stone.run_id


class ArtifactTombstoneRecord(SideRecord):
    """The artifacts of a run were deleted, and the run stays."""

    kind = "bare"
    gone: ArtifactTombstone
    artifacts: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        return self.gone.run_id


class Paid(BaseModel):
    """Spending of a run on its newest paid day (UTC), and the bytes of its wake if that came on it."""

    model_config = StoredHeader.model_config

    day: str
    usd: float = 0.0
    size: NonNegative = 0


class RunRow(StoredHeader):
    """Index row of a run after an entry, and the entry's effect on limits.

    `bytes`: of all its messages. `whole_at`: position of its newest snapshot; 0: the first message. `dispatched`: all
    entries up to it are. `reserves`: model call for which the entry reserves funds.
    """

    wake_id: str
    digest: str
    accepted_at: Instant
    seq: Annotated[int, Field(ge=1, lt=2**63)]
    head: Hash
    status: Status
    at: Instant
    due_at: Instant | None = None
    summary: str
    goal: str
    caller: str = ""
    line: dict[str, Any]
    bytes: NonNegative
    whole_at: NonNegative = 0
    paid: Paid | None = None
    by: str
    dispatched: NonNegative = 0
    opened: int = 0
    paid_usd: float = 0.0
    size: NonNegative = 0
    call: CallCharge | None = None
    reserves: NonNegative = 0

    @classmethod
    def of(
        cls, commit: Commit, before: "RunRow | None", *, by: str, digest: str, whole_at: int, size: int, dispatched: int
    ) -> Self:
        entry, state, due_at = commit.entry, commit.state, commit.state.due_at
        at, (day, _, usd, wake_bytes) = microseconds(entry.at), commit.spending
        reserved = commit.event if isinstance(commit.event, CallReserved) else commit.first(CallReserved)
        paid = before.paid if before else None
        if usd or wake_bytes:
            known = paid if paid and paid.day == day else Paid(day=day)
            paid = Paid(day=day, usd=known.usd + usd, size=known.size + wake_bytes)
        return cls(
            v=LEVEL,
            wake_id=state.wake_id,
            digest=digest,
            accepted_at=microseconds(state.accepted_at),
            seq=entry.seq,
            head=entry.hash,
            status=state.status,
            at=max(at, before.at if before else at),
            due_at=microseconds(due_at) if due_at else None,
            summary=str(state.summary)[:SUMMARY],
            goal=state.brief.goal[:GOAL],
            caller=state.brief.caller,
            line=list_columns(state, due_at),
            bytes=size + (before.bytes if before else 0),
            whole_at=whole_at,
            paid=paid,
            by=by,
            dispatched=dispatched,
            opened=commit.opened,
            paid_usd=usd,
            size=wake_bytes,
            call=call_charge(commit.event) or (call_charge(reserved) if reserved else None),
            reserves=reserved.call if reserved else 0,
        )


@dataclass(frozen=True, slots=True)
class RemoteCommit:
    """Entry that another process committed. `position`: place in the journal of all runs."""

    run_id: str
    position: int
    row: RunRow


_SIDE_RECORDS = {of.kind: of for of in (HaltRecord, DismissalRecord, TombstoneRecord, ArtifactTombstoneRecord)}


def row_in(stored: StoredMessage) -> RunRow | None:
    """None for a header of a newer version, or of no agent."""
    return _read(RunRow, stored.headers.get(ROW, ""))


def record_in(subject: str, text: str) -> SideRecord | None:
    """None also for a subject without side records."""
    kind = _SIDE_RECORDS.get(subject.removeprefix(f"{subjects.STORE}.").partition(".")[0])
    return _read(kind, text) if kind else None


H = TypeVar("H", bound=StoredHeader)


@lru_cache(maxsize=512)  # the index's thread reads a header, and the event loop reads it again
def _read(kind: type[H], text: str) -> H | None:
    try:
        header = kind.model_validate_json(text)
    except ValidationError:
        return None
    return header if header.v <= LEVEL else None
