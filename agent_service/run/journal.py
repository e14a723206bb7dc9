"""Journal entries, the text form of stored values, and the replay that decides entries again.

An entry is one decided event. Its hash covers its text and the hash before (SHA-256), so a changed, missing or moved
entry is detected. Stores keep the text and never parse it.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter

from agent_service.core.brief import Brief
from agent_service.core.decide import decide, with_reserve
from agent_service.core.events import Event, EventFacts, ModelReplied, Transition
from agent_service.core.facts import CallAsked, CallLost, CallReserved, Fact, PersonAsked, RunEnded, RunStanding, Slept
from agent_service.core.state import RunState
from agent_service.core.waiting import FINAL
from agent_service.errors import Damaged
from schemas.values import dataclass

RULES = 1
"""Version of the rules; raised when an event leads to other facts. Entries record it."""
GENESIS = "0" * 64

GROWING = (
    "notes", "completed", "artifacts", "facts", "messages", "signals", "late", "evidence", "children",
)  # fmt: skip
"""Fields that grow with every step, stored item by item: an entry costs the same at step 5 and at step 500."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFacts:
    rules: int
    facts: tuple[Fact, ...]


_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}
_STORED_APART = {"brief", "happened", *GROWING}

_json: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""Built on first use: building all takes a sixth of the import time."""


@cache
def _item(field: str) -> TypeAdapter[Any]:
    return _json(get_args(get_type_hints(RunState)[field])[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`event` and `facts` are JSON; `kind` is the class name of the event. `facts` begins with the rules version."""

    run_id: str
    seq: int
    at: datetime
    kind: str
    event: str
    facts: str
    previous: str
    hash: str

    def decoded(self) -> Event:
        """Raises Damaged; ValueError for a kind that only a newer version knows."""
        if self.kind not in _KINDS:
            raise ValueError(
                f"run {self.run_id}: entry {self.seq} is of unknown kind {self.kind!r}: use a newer version"
            )
        try:
            event: Event = _json(_KINDS[self.kind]).validate_json(self.event)
        except ValueError as error:
            raise Damaged(self.run_id, f"entry {self.seq}, {self.kind}") from error
        return event

    @property
    def rules(self) -> int:
        return int(self.facts.partition(",")[0].removeprefix('{"rules":'))

    def stored_facts(self) -> tuple[Fact, ...]:
        """Raises Damaged."""
        try:
            led_to: StoredFacts = _json(StoredFacts).validate_json(self.facts)
        except ValueError as error:
            raise Damaged(self.run_id, f"facts of entry {self.seq}") from error
        return led_to.facts

    def record(self) -> "JournalRecord":
        """Raises as `decoded` does."""
        return JournalRecord(entry=self, event=self.decoded(), facts=self.stored_facts())

    def recomputed_hash(self) -> str:
        return _chain(self.previous, self.run_id, self.seq, self.at, self.kind, self.event, self.facts)


@dataclass(frozen=True, kw_only=True)
class JournalRecord(EventFacts):
    """Entry with its event and facts decoded."""

    entry: Entry

    @property
    def stands(self) -> RunStanding:
        """Final fact of every entry."""
        stands = self.first(RunStanding)
        if stands is None:
            raise ValueError(f"run {self.entry.run_id}: entry {self.entry.seq} does not say where the run stands")
        return stands

    @property
    def rests(self) -> bool:
        """True if the run ended with this entry, or began to wait for a person or an instant."""
        return not self.kinds.isdisjoint((RunEnded, PersonAsked, Slept))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    state: RunState
    head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Change of a growing field: the `dropped` oldest items went, items `added` (JSON) came."""

    field: str
    dropped: int
    added: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Commit(JournalRecord):
    """One decided event with the run before (None for the first entry) and after it, stored in one transaction.

    `brief` is set if it changed; it and `growth` are empty in a replay.
    """

    before: RunState | None
    state: RunState
    brief: Brief | None = None
    growth: tuple[Growth, ...] = ()

    @property
    def run_id(self) -> str:
        return self.entry.run_id

    @property
    def state_transition(self) -> str:
        """Such as `acting->thinking`; an ended run appears with its status."""
        runs = (self.before, self.state)
        return "->".join([(run.status.value if run.final else run.waiting.kind) if run else "none" for run in runs])

    @cached_property
    def paid_usd(self) -> float:
        """Price of a reply, or the assumed cost of a lost one; 0 if unknown. Children pay for themselves."""
        if isinstance(self.event, ModelReplied):
            return self.event.usage.cost_usd or 0.0
        return sum([lost.cost_usd or 0.0 for lost in self.all(CallLost)], 0.0) if CallLost in self.kinds else 0.0

    @property
    def spending(self) -> tuple[str, str, float, int]:
        """Day (UTC), caller, cost of the entry in USD, and bytes of its caller's wake."""
        brief, entry = self.state.brief, self.entry
        size = len(entry.event.encode()) if entry.seq == 1 and brief.caller and not brief.as_step else 0
        return f"{entry.at:%Y-%m-%d}", brief.caller, self.paid_usd, size

    @cached_property
    def opened(self) -> int:
        """Change in the number of open runs of the caller. Child runs do not count."""
        was_open = self.before is not None and self.before.waiting.status not in FINAL
        is_open = self.state.waiting.status not in FINAL
        if was_open is is_open or not self.state.brief.caller or self.state.brief.as_step:
            return 0
        return is_open - was_open


def commit_of(before: Run | None, transition: Transition) -> Commit:
    """Raises ValueError for a transition that did not change the run."""
    event, state = transition.event, transition.state
    if state is None or transition.ignored:
        raise ValueError(f"nothing to commit: {transition.ignored}")
    then, head = (before.state, before.head) if before else (None, GENESIS)
    changed = then is None or then.brief is not state.brief
    kind = type(event).__name__
    text, led_to = _json(type(event)).dump_json(event, by_alias=True).decode(), facts_text(transition.facts)
    return Commit(
        entry=Entry(
            run_id=state.run_id,
            seq=state.version,
            at=event.at,
            kind=kind,
            event=text,
            facts=led_to,
            previous=head,
            hash=_chain(head, state.run_id, state.version, event.at, kind, text, led_to),
        ),
        event=event,
        facts=transition.facts,
        before=then,
        state=state,
        brief=state.brief if changed else None,
        growth=growth_of(then, state),
    )


def growth_of(before: RunState | None, after: RunState) -> tuple[Growth, ...]:
    old, new = vars(before) if before else {}, vars(after)
    grown = []
    for name in GROWING:
        was, now, dropped = old.get(name, ()), new[name], 0
        if was is now or was == now:
            continue
        while was[dropped:] != now[: len(was) - dropped]:
            dropped += 1
        added = [_item(name).dump_json(one).decode() for one in now[len(was) - dropped :]]
        grown.append(Growth(field=name, dropped=dropped, added=tuple(added)))
    return tuple(grown)


def encode_state(state: RunState) -> str:
    return _json(RunState).dump_json(state, exclude=_STORED_APART).decode()


def encode_brief(brief: Brief) -> str:
    return _json(Brief).dump_json(brief, by_alias=True).decode()


def decode_state(state: str, brief: str, items: Iterable[tuple[str, str]] = ()) -> RunState:
    """`items`: field and JSON of each item of the growing fields, in order. Raises ValueError."""
    grown: dict[str, list[str]] = {}
    for name, item in items:
        grown.setdefault(name, []).append(item)
    fields = "".join(f',"{name}":[{",".join(grown[name])}]' for name in grown)
    read: RunState = _json(RunState).validate_json(f'{state[:-1]},"brief":{brief}{fields}}}')
    return read


def facts_text(facts: Sequence[Fact]) -> str:
    return _json(StoredFacts).dump_json(StoredFacts(rules=RULES, facts=tuple(facts)), by_alias=True).decode()


def _chain(previous: str, run_id: str, seq: int, at: datetime, kind: str, event: str, facts: str) -> str:
    text = "\n".join((previous, run_id, str(seq), at.astimezone(UTC).isoformat(), kind, facts, event))
    return hashlib.sha256(text.encode()).hexdigest()


def flaw_in_chain(entries: Iterable[Entry]) -> str | None:
    """First missing, moved or changed entry of a journal that begins with its first."""
    previous = GENESIS
    for number, entry in enumerate(entries, start=1):
        if entry.seq != number:
            return f"entry {number} is missing: entry {entry.seq} stands in its place"
        if entry.previous != previous:
            return f"entry {entry.seq} does not continue entry {entry.seq - 1}"
        if entry.recomputed_hash() != entry.hash:
            return f"entry {entry.seq} was changed after it was written"
        previous = entry.hash
    return None


def replay(entries: Iterable[Entry]) -> Iterator[Commit]:
    """Decides each event of a journal again, from its first entry. Raises Damaged, and ValueError for an entry that
    cannot follow or leads to other facts.
    """
    before: RunState | None = None
    for entry in entries:
        event = entry.decoded()
        transition = decide(before, event)
        # whether its call could be made at once is not in the event
        stored = entry.stored_facts() if CallAsked in transition.kinds else ()
        if reserved := next((fact for fact in stored if isinstance(fact, CallReserved)), None):
            transition = with_reserve(transition, reserved) or transition
        after, led_to = transition.state, transition.facts
        if after is None or transition.ignored or (after.run_id, after.version) != (entry.run_id, entry.seq):
            raise ValueError(f"entry {entry.seq} changes nothing by the rules of this version ({transition.ignored})")
        if entry.rules == RULES and facts_text(led_to) != entry.facts:
            raise ValueError(f"entry {entry.seq} leads to other facts than those that are stored with it")
        yield Commit(entry=entry, event=event, facts=led_to, before=before, state=after)
        before = after


def followed(entries: Sequence[Entry], run_id: str) -> list[Commit]:
    """The commits of the run's whole journal, decided again. Raises ValueError with its first flaw."""
    if not entries:
        raise ValueError(f"run {run_id} has no entries")
    if entries[0].run_id != run_id:
        raise ValueError(f"entry 1 belongs to run {entries[0].run_id}")
    if flaw := flaw_in_chain(entries):
        raise ValueError(flaw)
    commits = list[Commit]()
    try:
        for commit in replay(entries):
            commits.append(commit)
    except (ValueError, AssertionError, TypeError) as error:
        raise ValueError(f"entry {len(commits) + 1} cannot be followed: {error}") from error
    return commits
