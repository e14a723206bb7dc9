"""Marker of a store whose runs are moving, so that never two stores go on with them: in the shared log, or a file.

    coming ─▶ here ─▶ left

A log without a marker has its runs here. Each step is stored before the next, so the same command finishes a restore.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from groundwork.nats.shared_log import SharedLog
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from schemas import subjects

FILE = "moved.json"
"""In the folder of a store whose runs were exported to be moved."""


class MoveMarker(BaseModel):
    """`archive`: name of the backup that the runs come from. `position`: of this marker in the log."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    state: Literal["coming", "here", "left"] = "here"
    archive: str = ""
    position: int = 0


async def read_marker(log: SharedLog) -> MoveMarker:
    """Reads the newest marker. Raises TryAgain, and Misconfigured for one of a newer version."""
    fact = await log.newest(subjects.STORED_MOVED)
    if fact is None:
        return MoveMarker()
    try:
        return MoveMarker.model_validate_json(fact.body).model_copy(update={"position": fact.seq})
    except ValidationError as error:
        raise Misconfigured(
            f"{subjects.STORED_MOVED} cannot be read: a newer version wrote it, or no agent did. Use the newest version"
        ) from error


async def write_marker(log: SharedLog, marker: MoveMarker, before: MoveMarker) -> MoveMarker:
    """Replaces `before`. Raises AppendConflict if it was changed meanwhile, and TryAgain."""
    body = marker.model_dump_json(exclude={"position"}).encode()
    position = await log.append(subjects.STORED_MOVED, body, after=before.position)
    return marker.model_copy(update={"position": position})


async def require_runs_here(log: SharedLog) -> None:
    """An agent that has joined checks this before it starts. Raises Misconfigured, and TryAgain."""
    marker = await read_marker(log)
    if marker.state == "coming":
        raise Misconfigured(
            f"runs are being restored into the stream {subjects.STREAM_RUNS}, and that was not finished: run `agentic "
            f"restore` of {marker.archive} again"
        )
    if marker.state == "left":
        raise Misconfigured(
            f"the runs of the stream {subjects.STREAM_RUNS} were exported to be moved: start the agent of the store "
            f"that they were restored into; or make the stream anew: `nats stream rm {subjects.STREAM_RUNS}`, then "
            "`agentic setup --shared`"
        )


def is_moved_away(folder: Path) -> bool:
    return (folder / FILE).exists()


def require_not_moved(folder: Path) -> None:
    if is_moved_away(folder):
        raise Misconfigured(
            f"the runs of {folder} were exported to be moved: set agent.store to the store that they were restored "
            f"into; or, if they were restored nowhere, delete {folder / FILE}"
        )


def remove_marker(folder: Path) -> None:
    (folder / FILE).unlink(missing_ok=True)


@asynccontextmanager
async def leaving(folder: Path, log: SharedLog | None) -> AsyncIterator[None]:
    """No agent starts on the log (or the folder's store) inside, and after it unless it fails."""
    before = await read_marker(log) if log else MoveMarker(state="left" if is_moved_away(folder) else "here")
    if log:
        if before.state == "coming":
            await require_runs_here(log)
        marker = await write_marker(log, MoveMarker(state="left"), before)
    else:
        store_folder.write(folder / FILE, "{}\n")
    try:
        yield
    except BaseException:
        if log:
            await write_marker(log, before, marker)
        elif before.state == "here":
            remove_marker(folder)
        raise
