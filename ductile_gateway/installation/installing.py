"""Agents are added to a Ductile, and taken out again: what that changes, and how it is carried out.

    look ─▶ Ductile's own check ─▶ show ─▶ carry out ─▶ lock ─▶ check again, or take it all back

Rules: what somebody else wrote, or has changed since, is not overwritten and not removed. A configuration that Ductile
takes before is one that it takes afterwards.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ductile_gateway.calls.excerpts import masked
from ductile_gateway.installation import record, writing
from ductile_gateway.installation.changes import Change, carry_out, shown, take_back
from ductile_gateway.installation.editing import additions, removals
from ductile_gateway.installation.found import Found
from ductile_gateway.installation.plan import NewFile, Plan, plan
from ductile_gateway.installation.program import DuctileProgram
from ductile_gateway.installation.record import KeptFile, Record
from ductile_gateway.installation.wishes import Wishes
from groundwork.service.errors import Misconfigured

CHECKSUMS = ".checksums"
"""What `ductile config lock` writes, beside the main file."""
SETTINGS_BEGIN = b"# The agent and its gateway beside the Ductile in "


@dataclass(frozen=True, slots=True)
class Proposal:
    """`changes`: in the order in which they are carried out. `kept`: files that were changed since by somebody else,
    and are left alone. `plan`: of what is added. `was_locked`: whether Ductile had locked its configuration before
    anything was added. `hidden`: secrets. `lacking`: what was asked for now and is not in a file that is kept."""

    found: Found
    changes: Sequence[Change]
    kept: Sequence[Path]
    agents_folder: Path
    plan: Plan | None = None
    was_locked: bool = True
    hidden: Sequence[str] = field(default=(), repr=False)
    lacking: Mapping[Path, Sequence[str]] = field(default_factory=dict)

    @property
    def is_needed(self) -> bool:
        return any(change.changes for change in self.changes)

    def text(self) -> str:
        """What would change, for people."""
        return shown(self.changes, hidden=self.hidden)

    def check(self) -> None:
        """Raises Misconfigured where a file that is kept would have to say more: then nothing is changed."""
        if not self.lacking:
            return
        told = "\n\n".join("\n".join([f"{path}:", *lines]) for path, lines in self.lacking.items())
        raise Misconfigured(
            "Nothing was changed: what you asked for belongs into what you have changed since it was put there. Add "
            f"these lines, each in its place, and give the command again.\n\n{masked(told, self.hidden)}"
        )

    def carry_out(self, program: DuctileProgram | None, *, checked: bool = True) -> None:
        """Change, lock and check. Raises Misconfigured, after it was taken back, where Ductile would not start."""
        main, within = self.found.main, (self.found.folder, self.agents_folder)
        if program and checked and (flaw := program.flaw(main)):
            raise Misconfigured(
                f"Ductile itself finds its configuration wrong before anything is changed: {flaw}\n"
                "Mend that first; where it is only that this terminal lacks variables, `--unchecked` goes on"
            )
        locks = {lock: lock.read_bytes() for file in self.found.files if (lock := file.parent / CHECKSUMS).exists()}
        carry_out(self.changes, like=main, within=within)
        if program is None:
            return
        try:
            if self.plan or self.was_locked:
                program.lock(main)
            flaw = program.flaw(main) if checked else ""
        except Misconfigured as error:
            flaw = str(error)
        if flaw:
            take_back(self.changes, like=main, within=within)
            for lock, before in locks.items():
                writing.change(lock, before)
            if self.plan and not self.was_locked:
                (self.found.folder / CHECKSUMS).unlink(missing_ok=True)
            raise Misconfigured(f"Ductile would not start with it, so it was taken back: {flaw}")


def installation(found: Found, wishes: Wishes) -> Proposal:
    """What adds agents to it, or brings what was added before up to date. Raises Misconfigured."""
    before = record.read(found)
    is_ours: Callable[[Path], bool] = lambda path: before is not None and _digest(path) == before.digest_of(path)  # noqa: E731
    planned = plan(found, wishes, ours=is_ours if before else None)
    kept = [file.path for file in planned.files if before and file.path.exists() and not is_ours(file.path)]
    files = [_written(file) for file in planned.files if file.path not in kept]
    edits = additions(planned.added)
    checksums = found.folder / CHECKSUMS
    was_locked = checksums.exists()
    made = [*(edit.path for edit in edits if edit.before is None), *(() if was_locked else [checksums])]
    noted = record.of(planned, made=made, before=before).as_text().encode()
    place = record.place(found)
    there = place.read_bytes() if before else None
    note = Change(path=place, before=there, after=noted, secret=True, among_others=True)
    changes = [*files, *edits]
    needed = any(each.changes for each in changes)
    lacking = {file.path: lines for file in planned.files if file.path in kept and (lines := _lacking(file, before))}
    return Proposal(
        found,
        [note, *changes] if needed else [],
        kept,
        planned.agents_folder,
        planned,
        was_locked,
        planned.hidden,
        lacking,
    )


def removal(found: Found) -> Proposal:
    """What takes it out again. Raises Misconfigured."""
    before = record.read(found)
    if before is None:
        raise Misconfigured(f"nothing was installed in {found.folder}: there is no {record.place(found)}")
    if stranger := next(_strangers(found, before), None):
        raise Misconfigured(
            f"{record.place(found)} names {stranger}, which no installation writes: somebody else has changed it. "
            "Take out by hand what docs/DUCTILE.md names"
        )
    if user := next(found.uses_of_ours(), None):
        raise Misconfigured(f"{user}, and Ductile would not start without it: change that first")
    kept = _changed_since(before)
    edits = removals([item.added() for item in before.items], made=before.made)
    gone = [_gone(file) for file in before.files if file.path not in kept and file.path.exists()]
    place, checksums = record.place(found), found.folder / CHECKSUMS
    was_locked = checksums not in before.made
    if not was_locked and checksums.exists():
        gone.append(Change(path=checksums, before=checksums.read_bytes(), after=None))
    note = Change(path=place, before=place.read_bytes(), after=None, secret=True)
    left = [path for path in kept if path.exists()]
    hidden = [secret for item in before.items if (secret := item.added().secret)]
    return Proposal(found, [*edits, *gone, note], left, before.agents_folder, was_locked=was_locked, hidden=hidden)


def _lacking(file: NewFile, before: Record | None) -> list[str]:
    """The lines that are new since the file was written last, and that nobody has added."""
    if before is None or not file.whole:
        return []
    written, there = before.text_of(file.path), file.path.read_text(encoding="utf-8", errors="replace")
    known = {line.strip() for line in (*written.splitlines(), *there.splitlines())}
    return [line for line in file.content.decode().splitlines() if line.strip() not in known]


def _strangers(found: Found, before: Record) -> Iterator[Path]:
    """What is neither in Ductile's folder nor one of the agent's files: whoever may write the record is not to choose
    what somebody with more rights removes."""
    ductiles = [item.path for item in before.items] + [*before.made]
    ductiles += [file.path for file in before.files if not file.at_agent]
    for path in map(Path.resolve, ductiles):
        if not path.is_relative_to(found.folder.resolve()) and path not in found.files:
            yield path
    for file in (file for file in before.files if file.at_agent and _digest(file.path) == file.sha256):
        is_secret = file.path.resolve().parent.parts[-2:] == (".agentic", "secrets")
        if not is_secret and not file.path.read_bytes().startswith(SETTINGS_BEGIN):
            yield file.path


def _changed_since(before: Record) -> list[Path]:
    """Where the agent's settings are kept, their secrets are, too."""
    changed = [file for file in before.files if _digest(file.path) != file.sha256]
    if any(file.at_agent and file.path.exists() for file in changed):
        changed += [file for file in before.files if file.at_agent and file not in changed]
    return [file.path for file in changed]


def _written(file: NewFile) -> Change:
    before = file.path.read_bytes() if file.path.exists() else None
    return Change(
        path=file.path, before=before, after=file.content, secret=file.secret, program=file.program, whole=file.whole
    )


def _gone(file: KeptFile) -> Change:
    return Change(
        path=file.path, before=file.path.read_bytes(), after=None, secret=file.path.stat().st_mode & 0o077 == 0
    )


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None
