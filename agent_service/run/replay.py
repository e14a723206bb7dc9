"""Replay: the commits of a journal, decided again from its entries."""

from collections.abc import Iterable, Iterator, Sequence

from agent_service.core.decide import decide, with_reserve
from agent_service.core.events import Transition
from agent_service.core.facts import CallAsked, CallReserved
from agent_service.core.state import RunState
from agent_service.run.journal import RULES, Commit, Entry, facts_text, flaw_in_chain


def replay(entries: Iterable[Entry]) -> Iterator[Commit]:
    """Decides each event of a journal again, from its first entry. Raises Damaged, and ValueError for an entry that
    cannot follow or leads to other facts.
    """
    before: RunState | None = None
    for entry in entries:
        event = entry.decoded()
        transition = _with_its_reserve(decide(before, event), entry)
        after, led_to = transition.state, transition.facts
        if after is None or transition.ignored or (after.run_id, after.version) != (entry.run_id, entry.seq):
            raise ValueError(f"entry {entry.seq} changes nothing by the rules of this version ({transition.ignored})")
        if entry.rules == RULES and facts_text(led_to) != entry.facts:
            raise ValueError(f"entry {entry.seq} leads to other facts than those that are stored with it")
        yield Commit(entry=entry, event=event, facts=led_to, before=before, state=after)
        before = after


def _with_its_reserve(decided: Transition, entry: Entry) -> Transition:
    """Adds the stored reserve: whether a call could be made at once is not in the event."""
    led_to = entry.stored_facts() if CallAsked in decided.kinds else ()
    reserved = next((fact for fact in led_to if isinstance(fact, CallReserved)), None)
    return (with_reserve(decided, reserved) if reserved else None) or decided


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
