"""Where the runs are, so that never two stores go on with them: a mark in a shared log, or a file in a folder.

    coming ─▶ here ─▶ left

A log without a mark has its runs here. Each step is said before the next, so the same command finishes a restore.
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
    """`archive`: the name of the one that they come from. `position`: of this mark."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    state: Literal["coming", "here", "left"] = "here"
    archive: str = ""
    position: int = 0


async def read_marker(log: SharedLog) -> MoveMarker:
    """The newest. Raises TryAgain, and Misconfigured for one that no version known to this program wrote."""
    fact = await log.newest(subjects.STORED_MOVED)
    if fact is None:
        return MoveMarker()
    try:
        return MoveMarker.model_validate_json(fact.body).model_copy(update={"position": fact.seq})
    except ValidationError as error:
        raise Misconfigured(
            f"{subjects.STORED_MOVED} cannot be read: a newer version wrote it, or no agent did. Use the newest version"
        ) from error


async def write_marker(log: SharedLog, mark: MoveMarker, before: MoveMarker) -> MoveMarker:
    """In the place of `before`. Raises AppendConflict where another has changed it meanwhile, and TryAgain."""
    body = mark.model_dump_json(exclude={"position"}).encode()
    position = await log.append(subjects.STORED_MOVED, body, after=before.position)
    return mark.model_copy(update={"position": position})


async def require_runs_here(log: SharedLog) -> None:
    """To be asked by an agent that has joined, before it begins. Raises Misconfigured, and TryAgain."""
    mark = await read_marker(log)
    if mark.state == "coming":
        raise Misconfigured(
            f"runs are being restored into the stream {subjects.STREAM_RUNS}, and that was not finished: run `agentic "
            f"restore` of {mark.archive} again"
        )
    if mark.state == "left":
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
    """Inside, and afterwards unless it fails, no agent begins on the log, or without one on the store in the folder."""
    before = await read_marker(log) if log else MoveMarker(state="left" if is_moved_away(folder) else "here")
    if log:
        if before.state == "coming":
            await require_runs_here(log)
        mark = await write_marker(log, MoveMarker(state="left"), before)
    else:
        store_folder.write(folder / FILE, "{}\n")
    try:
        yield
    except BaseException:
        if log:
            await write_marker(log, before, mark)
        elif before.state == "here":
            remove_marker(folder)
        raise
