"""`agentic verify` of a run: its row and its folder by its journal, whose entries are decided again.

The agent may run. Pages may be behind their journal, for they are rendered when they are read: that is told, and is no
flaw. The bus is needed only for artifacts that have no folder, or no hash in the journal.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from agent_service.bus.buckets import key_of
from agent_service.cli.archive.records import LateArtifacts, Outcome, Records, artifacts_of, bus_when_needed, records
from agent_service.cli.whereabouts import told
from agent_service.history.artifacts import FILES, NamedArtifact, is_artifact_path
from agent_service.history.plain import one_line
from agent_service.run.journal import Entry, Run
from agent_service.run.moments import as_decided
from agent_service.store.rows import Loaded
from agent_service.views.folder.verify import JOURNAL, Flaw
from agent_service.views.folder.verify import verify as flaws_of
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import microseconds

ROW = "row"
DEPTH = 3
"""Of a state, its brief, and the limits in that, the parts are named."""
LOOKS = 5
LOOK_AGAIN_S = 0.5
OF_THE_DATABASE = frozenset({JOURNAL, ROW})
PASSING = frozenset({"behind", "missing"})
"""Kinds of flaws that an agent at work mends by itself within a second or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified(Outcome):
    """`unchecked`: artifacts that could not be held against anything. `behind`: pages that are as of an earlier
    entry."""

    run_id: str
    config: str
    entries: int
    pages: int = 0
    artifacts: int = 0
    unchecked: tuple[str, ...] = ()
    behind: tuple[Flaw, ...] = ()
    flaws: tuple[Flaw, ...]

    @property
    def ok(self) -> bool:
        return not self.flaws

    def __str__(self) -> str:
        return "\n".join((self._verdict(), *(f"! {flaw}, and is rendered when it is read" for flaw in self.behind)))

    def _verdict(self) -> str:
        if self.ok:
            unchecked = f" ({len(self.unchecked)} of them unproved: the bus did not tell)" if self.unchecked else ""
            pages = f"{self.pages} pages" if self.pages else "no pages (they are written when asked for)"
            counts = f"{self.entries} entries, {pages}, {self.artifacts} artifacts{unchecked}"
            return f"✓ {self.run_id} is as it was written: {counts}"
        lines = [f"✗ {one_line(str(flaw), 500)}" for flaw in self.flaws]
        if not any(flaw.place in OF_THE_DATABASE for flaw in self.flaws):
            lines.append("The journal is whole: delete the file, and it is written anew when the run's files are read")
        return "\n".join(lines)


async def verify(name: str, config: Path | None) -> Verified:
    async with records(config) as kept, bus_when_needed(kept.settings) as bus:
        return await verified(kept, await kept.named(name), bus)


async def verified(kept: Records, run_id: str, bus: LateArtifacts) -> Verified:
    for look in range(LOOKS):
        await asyncio.sleep(LOOK_AGAIN_S if look else 0)
        verdict = await _look(kept, run_id, bus)
        if not verdict.flaws or any(flaw.kind not in PASSING for flaw in verdict.flaws):
            break
    return verdict


async def _look(kept: Records, run_id: str, bus: LateArtifacts) -> Verified:
    row_flaws, entries = await journal_of(kept, run_id)
    flaws = await _flaws(kept, run_id, entries, {})
    if row_flaws and not _in_journal(flaws):
        flaws = row_flaws if _in_journal(row_flaws) else [*row_flaws, *flaws]
    verdict = _with(flaws, Verified(run_id=run_id, config=told(kept.config), entries=len(entries), flaws=()))
    if any(flaw.place in OF_THE_DATABASE for flaw in flaws):
        return verdict
    named = {} if kept.store.graves.artifacts_of(run_id) else artifacts_of(entries)
    folder = await asyncio.to_thread(kept.workspace.files, run_id)
    on_bus = {path: one for path, one in named.items() if folder is None or one.sha256 is None}
    stored = await _stored(run_id, on_bus, bus) if on_bus else {}
    unchecked = tuple(on_bus if stored is None else () if folder is None else on_bus.keys() - stored.keys())
    whole = replace(verdict, artifacts=len(named), unchecked=unchecked)
    if folder is None:
        return whole if stored is None else replace(whole, flaws=tuple(_on_the_bus_alone(named, stored)))
    whole = replace(whole, pages=len({file.path for file in folder.files} & set(FILES)))
    return _with(await _flaws(kept, run_id, entries, stored), whole) if stored else whole


def _with(flaws: Sequence[Flaw], verdict: Verified) -> Verified:
    behind = tuple(flaw for flaw in flaws if flaw.kind == "behind" and flaw.place != ROW)
    return replace(verdict, behind=behind, flaws=tuple(flaw for flaw in flaws if flaw not in behind))


def _in_journal(flaws: Sequence[Flaw]) -> bool:
    """Then it is the only one: by a flawed journal no file can be judged."""
    return any(flaw.place == JOURNAL for flaw in flaws)


async def journal_of(kept: Records, run_id: str) -> tuple[list[Flaw], list[Entry]]:
    """The entries, and flaws of the run's row, which is read first because the journal may grow."""
    loaded, goal = await kept.store.stored(run_id), await kept.store.goal(run_id)
    entries = await kept.entries(run_id)
    try:
        run = loaded.run() if loaded else None
    except ValueError as error:
        return [_in(JOURNAL, f"the state of the run cannot be read: {str(error).splitlines()[0]}")], entries
    if lost := _lost(run, entries):
        return [_in(JOURNAL, lost)], entries
    if not loaded or not run:
        return [], entries
    version = run.state.version
    flaws = [_in(ROW, text) for text in _of_row(loaded, run, goal, entries[:version])]
    if not flaws and len(entries) > version:
        text = f"it is as of entry {version}, and its journal has {len(entries)}"
        return [Flaw(kind="behind", place=ROW, text=text)], entries
    return flaws, entries


def _in(place: str, text: str) -> Flaw:
    return Flaw(kind="changed", place=place, text=text)


def _lost(run: Run | None, entries: list[Entry]) -> str:
    """A cut off journal, or one rewritten from some entry on: hashes cannot show that."""
    if run is None:
        return "the run has entries and no state"
    version = run.state.version
    if len(entries) < version:
        return f"entry {len(entries) + 1} is missing: the run had {version} entries"
    if entries[version - 1].hash != run.head:
        return f"entry {version} is not the one that the run's state was made with"
    return ""


def _of_row(loaded: Loaded, run: Run, goal: str, entries: Sequence[Entry]) -> Iterator[str]:
    try:
        state = as_decided(entries)
    except (ValueError, AssertionError, TypeError):  # of a journal that cannot be followed its own flaw is told
        return
    columns = {
        "version": (loaded.seq, state.version),
        "status": (loaded.status, state.status.value),
        "due_at": (loaded.due_at, microseconds(state.due_at) if state.due_at else None),
        "summary": (loaded.summary, str(state.summary)),
        "goal": (goal, state.brief.goal),
    }
    differing = [(f"its {name}", given, found) for name, (found, given) in columns.items() if found != given]
    for name, given, found in (*differing, *_differing(state, run.state)):
        yield f"{name} is {_short(found)}, and its journal gives {_short(given)}"


def _differing(given: Any, found: Any, name: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Any, Any]]:
    if given == found:
        return
    if not (depth and is_dataclass(given) and type(given) is type(found)):
        yield name, given, found
        return
    for field in fields(given):
        place = f"{name}.{field.name}" if name else field.name
        yield from _differing(getattr(given, field.name), getattr(found, field.name), place, depth - 1)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


async def _flaws(kept: Records, run_id: str, entries: list[Entry], stored: Mapping[str, str]) -> list[Flaw]:
    found = await asyncio.to_thread(lambda: flaws_of(entries, kept.workspace, run_id, stored=stored))
    if kept.store.graves.artifacts_of(run_id):  # they are kept no longer
        found = [flaw for flaw in found if flaw.kind != "missing" or not is_artifact_path(flaw.place)]
    return found


async def _stored(run_id: str, paths: Iterable[str], bus: LateArtifacts) -> dict[str, str] | None:
    """SHA-256 by path, of those that the bus has; None where it does not answer."""
    with suppress(TryAgain):
        hashes = await bus.hashes()
        return {path: hashes[key] for path in paths if (key := key_of(run_id, path)) in hashes}
    return None


def _on_the_bus_alone(named: Mapping[str, NamedArtifact], stored: Mapping[str, str]) -> Iterator[Flaw]:
    for path, artifact in named.items():
        held = stored.get(path)
        if not held or held != (artifact.sha256 or held):
            text = f"the run has no folder, and the bus has not what step {artifact.step} brought"
            yield Flaw(kind="changed" if held else "missing", place=path, text=text)
