"""`agentic export`: a run with its children into an archive that proves itself anywhere, with pages and artifacts.

Pages are of the same instant as the journal. A run that was changed by other hands is not exported, for the agent
signs the archive.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from agent_service.archive.runs import JOURNAL, ArchivedRun, journal_of, write_runs
from agent_service.cli.archive.records import (
    LateArtifacts,
    Records,
    artifacts_of,
    bus_when_needed,
    intact_copy,
    records,
)
from agent_service.cli.archive.run_folder import journal_of as stored_journal
from agent_service.cli.archive.writing import NOWHERE, Written, file_in
from agent_service.cli.errors import Exit, NotDone
from agent_service.history.artifacts import NamedArtifact
from agent_service.run.journal import Entry
from agent_service.run.moments import as_decided
from agent_service.views.folder.verify import flaw_in_journal
from agent_service.views.folder.workspace import MAX_BYTES
from agent_service.views.pages.files import pages_of
from groundwork.archive.format import Writer, writing
from groundwork.service.errors import Failure


async def export(name: str, place: Path | None, config: Path | None) -> Written:
    """Raises NotDone for an unknown run and for one that was changed, and Misconfigured for a file that is there."""
    async with records(config) as kept, bus_when_needed(kept.settings) as bus:
        run_id = await kept.named(name)
        made = Written(what=run_id, file=str(file_in(place, run_id)))
        with writing(Path(made.file), kept.ring) as archive:
            runs, wanted = list[ArchivedRun](), [run_id]
            for one in wanted:
                run, children = await _add_export(kept, one, archive, bus)
                runs.append(run)
                wanted += [child for child in children if child not in wanted]
            write_runs(archive, runs)
            archive.said["at"] = datetime.now(UTC)
    made.runs = {run.run_id: run.status.value for run in runs}
    made.about["agent"], made.size = {"runs": len(runs), "files": len(archive.files)}, archive.size
    made.left_out = {f"{run.run_id}/{path}": why for run in runs for path, why in run.left_out.items()}
    if kept.ring is None:
        made.then = "! it is not signed, for the file with the agent's keys is not there"
    return made


async def _add_export(
    kept: Records, run_id: str, archive: Writer, bus: LateArtifacts
) -> tuple[ArchivedRun, Sequence[str]]:
    """The run, and the children that it has in the store."""
    entries = await _journal(kept, run_id)
    state, named = as_decided(entries), artifacts_of(entries)
    contents, left_out = await _contents(kept, run_id, named, bus)
    children = [child.run_id for child in state.children]
    there = [child for child in children if kept.store.version(child)]
    left_out |= {child: "there is no such run any more" for child in children if child not in there}
    pages = {name: text.encode() for name, text in pages_of(entries).items()}
    for path, content in ({JOURNAL: journal_of(entries)} | pages | contents).items():
        archive.add(f"{run_id}/{path}", content)
    run = ArchivedRun(
        run_id=run_id,
        wake_id=state.wake_id,
        digest="",
        accepted_at=state.accepted_at,
        status=state.status,
        version=len(entries),
        head=entries[-1].hash,
        left_out=left_out,
    )
    return run, there


async def _journal(kept: Records, run_id: str) -> list[Entry]:
    flaws, entries = await stored_journal(kept, run_id)
    flaw = next((str(flaw) for flaw in flaws if flaw.kind != "behind"), None) or flaw_in_journal(entries, run_id)
    if flaw:
        text = f"{run_id} is not as its agent left it ({flaw}), so nothing was exported: see `agentic verify {run_id}`"
        raise NotDone(text, Exit.FAILED)
    return entries


async def _contents(
    kept: Records, run_id: str, named: dict[str, NamedArtifact], bus: LateArtifacts
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Of artifacts, by path; and of others why not."""
    contents, left_out = dict[str, bytes](), dict[str, str]()
    gone = kept.store.graves.artifacts_of(run_id)
    for path, artifact in named.items():
        try:
            content = None if gone else intact_copy(kept, run_id, artifact) or await bus.get(run_id, path)
        except Failure as error:
            left_out[path] = str(error)
            continue
        if content is None:
            left_out[path] = str(gone) if gone else NOWHERE
        elif len(content) > MAX_BYTES:
            left_out[path] = f"its {len(content)} bytes are more than a file may have here"
        elif artifact.sha256 and hashlib.sha256(content).hexdigest() != artifact.sha256:
            left_out[path] = "what the bucket has is not what its tool made"
        else:
            contents[path] = content
    return contents, left_out
