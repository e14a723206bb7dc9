"""`agentic verify` and `agentic rebuild` of a run's row and folder, by its journal, byte for byte.

The agent may run. Pages may be behind their journal, for they are rendered when they are read: that is told, and is no
flaw. The bus is needed only for artifacts that the folder does not have intact, or without a hash in the journal.
"""

import asyncio
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from agent_service.bus.buckets import key_of
from agent_service.cli.archive.records import (
    LateArtifacts,
    Outcome,
    Records,
    Sources,
    artifacts_of,
    bus_when_needed,
    records,
)
from agent_service.cli.errors import Exit, NotDone
from agent_service.cli.whereabouts import nearby, told
from agent_service.history.artifacts import FILES, NamedArtifact, is_artifact_path
from agent_service.history.plain import one_line
from agent_service.run.journal import Entry, Run, flaw_in_chain, rehearse
from agent_service.run.ports import Artifacts
from agent_service.store.rows import Loaded
from agent_service.views.folder.rendering import rewrite
from agent_service.views.folder.verify import JOURNAL, Flaw
from agent_service.views.folder.verify import verify as flaws_of
from groundwork.service.errors import Fatal, TryAgain
from groundwork.sqlite.file import microseconds

ROW = "row"
DEPTH = 3
"""Of a state, its brief, and the limits in that, the parts are named."""


def flaws_of_row(loaded: Loaded, run: Run, goal: str, entries: Sequence[Entry]) -> list[Flaw]:
    """Where the state is not what its journal gives, and the columns not what the state says."""
    wrong = (*_of_columns(loaded, run, goal), *_of_fold(run, entries))
    return [Flaw(kind="changed", place=ROW, text=text) for text in wrong]


def flaws_of_version(run: Run, entries: Sequence[Entry]) -> list[Flaw]:
    if len(entries) <= run.state.version:
        return []
    text = f"it is as of entry {run.state.version}, and its journal has {len(entries)}"
    return [Flaw(kind="behind", place=ROW, text=text)]


def _of_columns(loaded: Loaded, run: Run, goal: str) -> Iterator[str]:
    row, state = loaded, run.state
    due_at = microseconds(state.due_at) if state.due_at else None
    said = {
        "run_id": (row.run_id, state.run_id),
        "version": (row.seq, state.version),
        "status": (row.status, state.status.value),
        "due_at": (row.due_at, due_at),
        "summary": (row.summary, state.summary),
        "goal": (goal, state.brief.goal),
    }
    for name, (found, wanted) in said.items():
        if found != wanted:
            yield f"its {name} is {_short(found)}, and its state says {_short(wanted)}"


def _of_fold(run: Run, entries: Sequence[Entry]) -> Iterator[str]:
    try:
        *_, (_, transition) = rehearse(entries)
    except (ValueError, AssertionError, TypeError):  # of a journal that cannot be followed its own flaw is told
        return
    for name, given, found in _differing(transition.state, run.state):
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


LOOKS = 5
LOOK_AGAIN_S = 0.5
OF_THE_DATABASE = frozenset({JOURNAL, ROW})
PASSING = frozenset({"behind", "missing"})
"""Kinds of flaws that an agent at work mends by itself within a second or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified(Outcome):
    run_id: str
    config: str
    entries: int
    pages: int = 0
    artifacts: int = 0
    unchecked: tuple[str, ...] = ()
    behind: tuple[Flaw, ...] = ()
    """Pages that are as of an earlier entry."""
    flaws: tuple[Flaw, ...]

    @property
    def ok(self) -> bool:
        return not self.flaws

    def __str__(self) -> str:
        behind = [f"! {flaw}, and is rendered when it is read" for flaw in self.behind]
        return "\n".join((self._verdict(), *behind))

    def _verdict(self) -> str:
        if self.ok:
            unchecked = f" ({len(self.unchecked)} of them unproved: the bus did not tell)" if self.unchecked else ""
            pages = f"{self.pages} pages" if self.pages else "no pages (they are written when asked for)"
            counts = f"{self.entries} entries, {pages}, {self.artifacts} artifacts{unchecked}"
            return f"✓ {self.run_id} is as it was written: {counts}"
        lines = [f"✗ {one_line(str(flaw), 500)}" for flaw in self.flaws]
        if not any(flaw.place in OF_THE_DATABASE for flaw in self.flaws):
            command = f"agentic rebuild {self._option()}{self.run_id}"
            lines.append(f"`{command}` writes the folder anew from the journal, which is whole")
        return "\n".join(lines)

    def _option(self) -> str:
        return "" if self.config == told(nearby(None)) else f"--config {shlex.quote(self.config)} "


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
    named = artifacts_of(entries)
    if await asyncio.to_thread(kept.workspace.files, run_id) is None:
        return await _without_folder(kept, verdict, named, bus)
    unproved = [path for path, artifact in named.items() if artifact.sha256 is None]
    stored = await _stored(run_id, unproved, bus)
    whole = replace(
        verdict,
        pages=len(set(FILES) & (await _files(kept, run_id)).keys()),
        artifacts=len(named),
        unchecked=tuple(path for path in unproved if path not in stored),
    )
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
    flaws = flaws_of_row(loaded, run, goal, entries[: run.state.version])
    return flaws or flaws_of_version(run, entries), entries


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


async def _flaws(kept: Records, run_id: str, entries: list[Entry], stored: dict[str, bytes]) -> list[Flaw]:
    found = await asyncio.to_thread(lambda: flaws_of(entries, kept.workspace, run_id, stored=stored))
    if kept.store.graves.artifacts_of(run_id):  # they are kept no longer
        found = [flaw for flaw in found if flaw.kind != "missing" or not is_artifact_path(flaw.place)]
    return found


async def _without_folder(
    kept: Records, verdict: Verified, named: dict[str, NamedArtifact], bus: LateArtifacts
) -> Verified:
    if kept.store.graves.artifacts_of(verdict.run_id):
        named = {}
    there = await bus.hashes() if named else {}
    if there is None:
        return replace(verdict, artifacts=len(named), unchecked=tuple(named), flaws=())
    flaws = []
    for path, artifact in named.items():
        held = there.get(key_of(verdict.run_id, path))
        if not held or held != (artifact.sha256 or held):
            text = f"the run has no folder, and the bus has not what step {artifact.step} brought"
            flaws.append(Flaw(kind="changed" if held else "missing", place=path, text=text))
    return replace(verdict, artifacts=len(named), flaws=tuple(flaws))


async def _stored(run_id: str, paths: list[str], bus: Artifacts) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for path in paths:
        try:
            content = await bus.get(run_id, path)
        except (Fatal, TryAgain):
            break
        if content is not None:
            contents[path] = content
    return contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt(Outcome):
    run_id: str
    config: str
    files: int
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    missing: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{word:<8} {path}" for word in ("added", "changed", "removed", "missing") for path in getattr(self, word)
        ]
        same = "" if lines else ", nothing differed"
        return "\n".join((*lines, f"✓ {self.run_id}: {self.files} files are written from the journal{same}"))


async def rebuild(name: str, config: Path | None) -> Rebuilt:
    """Raises NotDone for an unknown run or a flawed journal, Misconfigured when it needs the bus."""
    async with records(config) as kept, bus_when_needed(kept.settings) as bus:
        run_id = await kept.named(name)
        named = await _named(kept, run_id)
        before = await _files(kept, run_id)
        await rewrite(run_id, kept.store, kept.workspace, Sources(kept.workspace, bus, named))
        after = await _files(kept, run_id)
    return Rebuilt(
        run_id=run_id,
        config=told(kept.config),
        files=len(after),
        added=_sorted(after.keys() - before.keys()),
        changed=_sorted(path for path in after.keys() & before.keys() if after[path] != before[path]),
        removed=_sorted(before.keys() - after.keys()),
        missing=_sorted(named.keys() - after.keys()),
    )


async def _named(kept: Records, run_id: str) -> dict[str, NamedArtifact]:
    entries = await kept.entries(run_id)
    flaw = flaw_in_chain(entries)
    try:
        named = {} if flaw else artifacts_of(entries)
    except (ValueError, AssertionError, TypeError) as error:
        flaw = f"it cannot be followed: {error}"
    if flaw:
        message = f"the journal of {run_id} is not whole ({flaw}): nothing was written. Restore the database"
        raise NotDone(message, Exit.FAILED)
    return named


def _sorted(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(paths))


async def _files(kept: Records, run_id: str) -> dict[str, str | None]:
    listing = await asyncio.to_thread(kept.workspace.files, run_id)
    if listing is None:
        return {}
    return {file.path: file.sha256 for file in listing.files} | dict.fromkeys(listing.foreign)
