"""Ways in which the shared store could be wrong: what of it is put in the place of what is right."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent_service.store.shared_log import applying
from agent_service.store.shared_log.appending import Appending, Attempt, OwnEntries
from agent_service.store.shared_log.facts import EntryFact, Span
from agent_service.store.shared_log.ownership import Share
from agent_service.store.shared_log.store import SharedStore
from groundwork.nats.shared_log import Moved
from tests.ports.simulation import NAMES


@dataclass(frozen=True)
class Mutant:
    where: Any
    name: str
    wrong: Any


async def by_the_copy_alone(self: SharedStore, run_id: str) -> int:
    return self.version(run_id)


async def after_whatever(self: Appending, fact: EntryFact, after: int) -> None:
    del after
    await self._copy.wait(await self._log.append(fact.subject, fact.encoded(), after=None))


async def after_what_is_newest_now(self: Appending, fact: EntryFact, after: int) -> None:
    newest = await self._log.newest(fact.subject)
    after = newest.seq if newest else 0
    await self._copy.wait(await self._log.append(fact.subject, fact.encoded(), after=after))


def told_over_gaps(told: int, version: int, spans: Iterable[Span]) -> tuple[int, list[Span]]:
    return min(version, max([told, *(upto for _, upto in spans)])), []


async def whoever_asks(_: SharedStore) -> None:
    """Nobody asks whether this process is still a member."""


def all_of_them(_: OwnEntries, run_id: str, seqs: Iterable[int]) -> tuple[int, ...]:
    del run_id
    return tuple(seqs)


async def by_the_answer_alone(self: Appending, fact: EntryFact, after: int) -> None:
    attempt = Attempt(asyncio.timeout(None), over=True)
    self._awaited.setdefault((fact.run_id, fact.seq, fact.hash), []).append(attempt)
    try:
        await self._say(fact, after)
    except BaseException:
        self._give_up(fact, attempt)
        raise


async def as_if_it_had_won(self: Appending, fact: EntryFact, after: int) -> None:
    with suppress(Moved):
        await self._log.append(fact.subject, fact.encoded(), after=after)


def whatever_it_is(self: Appending, entry: EntryFact) -> bool:
    names = [name for name in self._awaited if name[:2] == (entry.run_id, entry.seq)]
    for attempt in (attempt for name in names for attempt in self._awaited.pop(name)):
        attempt.arrived = True
        if not attempt.over:
            attempt.waiting.reschedule(0)
    return bool(names)


MUTANTS = {
    "what is decided stands on the copy": Mutant(SharedStore, "_newest_here", by_the_copy_alone),
    "an entry is stored whatever is the newest": Mutant(Appending, "_say", after_whatever),
    "an entry follows on what is newest when it is stored": Mutant(Appending, "_say", after_what_is_newest_now),
    "the answer counts, and not what the copy has": Mutant(Appending, "append", by_the_answer_alone),
    "who finds another in its place has won": Mutant(Appending, "_say", as_if_it_had_won),
    "any entry of ours is the one that is waited for": Mutant(Appending, "expected", whatever_it_is),
    "no entry of ours is the one that is waited for": Mutant(Appending, "expected", lambda *_: False),
    "who was taken for dead stores": Mutant(SharedStore, "_permitted", whoever_asks),
    "older entries are told with newer ones": Mutant(applying, "merged", told_over_gaps),
    "what is done here is left to be done": Mutant(OwnEntries, "left", all_of_them),
    "what could not be told is told to nobody": Mutant(OwnEntries, "not_told", lambda *_: None),
    "what an earlier try did not tell is told to nobody": Mutant(OwnEntries, "say_again", lambda *_: False),
    "what the dead left is nobody's": Mutant(
        Share, "_whose", property(lambda share: (share._members.me, str([*NAMES]).replace("'", '"')))
    ),
}
