"""What agents that share a store write to its log: entries of runs, and a few words beside them.

The body of an entry's message is the entry with what it leaves of the run. Its header is the run's row of the index:
lists, timers and limits read headers alone. Words beside runs are headers without a body. An older agent
must do without an added field; else VERSION is raised, and older agents leave the run to those who know it. Instants
are µs since 1970 UTC; hashes are hex digits.
"""

from contextlib import suppress
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from agent_service.archive.retention import Tombstone
from agent_service.core.waiting import Status, Thinking
from agent_service.errors import Changed, Newer
from agent_service.run.changes import CallTold, call_told
from agent_service.run.journal import RULES, Commit, Entry, Growth, encode_brief, encode_state
from agent_service.run.lines import list_columns
from agent_service.store.retention import row_of
from groundwork.nats.publishing import StoredMessage
from groundwork.sqlite.file import microseconds
from schemas.status import Halt
from schemas.values import dataclass

VERSION = 1
RULES_BELOW = 1000
LEVEL = VERSION * RULES_BELOW + RULES
ROW = "Agentic-Row"
GOAL, SUMMARY = 160, 80
"""Characters of them in the index."""
SNAPSHOT_EVERY = 64
"""After so many entries one says all of the run, so that no load reads more than these."""

Whole = Annotated[int, Field(ge=0, lt=2**63)]
Instant = Annotated[int, Field(ge=0, le=253_402_300_799_999_999)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFact:
    """`by`: the message under which it was committed. `whole`: all that grows is in `grown`."""

    v: int
    by: str
    entry: Entry
    state: str
    brief: str | None
    grown: tuple[Growth, ...]
    whole: bool = False


_ENTRY = TypeAdapter(EntryFact)


def fact_of(commit: Commit, by: str, *, whole: bool) -> EntryFact:
    brief = encode_brief(commit.state.brief) if commit.brief or whole else None
    state, grown = encode_state(commit.state), commit.growth
    return EntryFact(v=VERSION, by=by, entry=commit.entry, state=state, brief=brief, grown=grown, whole=whole)


def encoded(fact: EntryFact) -> bytes:
    return _ENTRY.dump_json(fact)


def entry_in(fact: StoredMessage, run_id: str) -> EntryFact:
    """Raises Newer, and Changed for what no agent wrote."""
    try:
        read = _ENTRY.validate_json(fact.body)
        level = read.v * RULES_BELOW + min(read.entry.rules, RULES_BELOW - 1)
    except ValueError:
        level, read = _version_of(fact.body) * RULES_BELOW, None
    if level > LEVEL:
        raise Newer(run_id)
    if read is None or read.entry.run_id != run_id or read.entry.recomputed_hash() != read.entry.hash:
        raise Changed(run_id, f"what lies at {fact.seq} of the log of all runs")
    return read


def _version_of(body: bytes) -> int:
    """As much of an entry as every version can read."""
    with suppress(ValueError, AttributeError, TypeError):
        return int(from_json(body).get("v", 0))
    return 0


class Said(BaseModel):
    """`v`: how new its writer is."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    v: Whole

    @property
    def header(self) -> dict[str, str]:
        return {ROW: self.model_dump_json(exclude_defaults=True)}


S = TypeVar("S", bound=Said)


def said_in(shape: type[S], fact: StoredMessage) -> S | None:
    """None for what a newer version wrote, or no agent."""
    try:
        said = shape.model_validate_json(fact.headers.get(ROW, ""))
    except ValidationError:
        return None
    return said if said.v <= LEVEL else None


class Paid(BaseModel):
    """What a run cost on a day (UTC), and how many bytes of its wake came then."""

    model_config = Said.model_config

    day: str
    usd: float
    size: Whole


class RunRow(Said):
    """A run after an entry: its row of the index, and what limits hear of the entry."""

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
    parent: str = ""
    line: dict[str, Any]
    reserved_usd: float | None = None
    """Set aside for its model call."""
    still: bool = False
    """Its model call waits for money."""
    has_artifacts: bool = False
    bytes: Whole
    """Of all its messages."""
    whole_at: Whole = 0
    """The position of the newest message that says all of the run; 0: its first."""
    paid: Paid | None = None
    by: str
    told: Whole = 0
    """All is known to be done that entries up to it ask for."""
    counts: bool = False
    """Among the open runs of its caller."""
    opened: int = 0
    paid_usd: float = 0.0
    size: Whole = 0
    call: CallTold | None = None

    @classmethod
    def of(
        cls, commit: Commit, before: "RunRow | None", *, by: str, digest: str, whole_at: int, size: int, told: int
    ) -> Self:
        entry, state = commit.entry, commit.state
        brief, paid, at = state.brief, commit.paid_usd, microseconds(entry.at)
        asked = len(entry.event) if entry.seq == 1 and brief.caller and not brief.as_step else 0
        return cls(
            v=LEVEL,
            wake_id=state.wake_id,
            digest=digest,
            accepted_at=microseconds(state.accepted_at),
            seq=entry.seq,
            head=entry.hash,
            status=state.status,
            at=max(at, before.at if before else at),
            due_at=microseconds(state.due_at) if state.due_at else None,
            summary=str(state.summary)[:SUMMARY],
            goal=brief.goal[:GOAL],
            caller=brief.caller,
            parent=brief.parent.run_id if brief.parent else "",
            line=list_columns(state),
            reserved_usd=(state.reserve.cost_usd or 0.0) if state.reserve else None,
            still=isinstance(state.waiting, Thinking) and state.waiting.still_since is not None,
            has_artifacts=bool(state.artifacts),
            bytes=size + (before.bytes if before else 0),
            whole_at=whole_at,
            paid=_paid(f"{entry.at:%Y-%m-%d}", paid, asked, before.paid if before else None),
            by=by,
            told=told,
            counts=bool(brief.caller) and not brief.as_step,
            opened=commit.opened,
            paid_usd=paid,
            size=asked,
            call=call_told(commit.outcome.event),
        )


def _paid(day: str, usd: float, size: int, before: Paid | None) -> Paid | None:
    if not usd and not size:
        return before
    known = before if before and before.day == day else Paid(day=day, usd=0.0, size=0)
    return Paid(day=day, usd=known.usd + usd, size=known.size + size)


class HaltSaid(Said):
    by: str
    halt: Halt


class SeenSaid(Said):
    run_id: str
    version: Whole
    person: str
    at: Instant


class GoneSaid(Said):
    """The tombstone of a run whose newest entry was `version`, and its artifacts, whose contents are to be removed."""

    version: Whole
    stone: tuple[str, str, str, Status, Whole, Instant, Instant, str]
    artifacts: tuple[str, ...] = ()

    @classmethod
    def of(cls, stone: Tombstone, version: int, artifacts: tuple[str, ...] = ()) -> Self:
        run_id, wake_id, digest, _, last, ended_at, at, rule = row_of(stone)
        told = run_id, wake_id, digest, stone.status, last, ended_at, at, rule
        return cls(v=LEVEL, version=version, stone=told, artifacts=artifacts)


class BareSaid(Said):
    """A run whose newest entry was `version` stays, and its artifacts went."""

    run_id: str
    version: Whole
    artifacts: tuple[str, ...] = ()
    rule: str
    at: Instant
