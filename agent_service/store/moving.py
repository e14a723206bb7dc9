"""Marker of a store whose runs are moving, so that never two stores go on with them: in the shared log, or a file.

    coming ─▶ here ─▶ left

A store without a marker has its runs here. Each step is stored before the next, so the same command finishes a restore.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from groundwork.nats.shared_log import AppendConflict, SharedLog
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from schemas import subjects

FILE = "moved.json"
"""In the folder of a store whose runs are coming, or have left."""


class MoveMarker(BaseModel):
    """`archive`: name of the backup that the runs come from. `position`: of this marker in the log."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    state: Literal["coming", "here", "left"] = "here"
    archive: str = ""
    position: int = 0


Place = Path | SharedLog
"""The folder of one agent's store, or the log of several."""


async def read_marker(place: Place) -> MoveMarker:
    """Reads the newest marker. Raises TryAgain, and Misconfigured for one of a newer version."""
    position, body = 0, b"{}"
    if isinstance(place, Path):
        body = (place / FILE).read_bytes() if (place / FILE).exists() else body
    elif fact := await place.newest(subjects.STORED_MOVED):
        position, body = fact.seq, fact.body
    try:
        return MoveMarker.model_validate_json(body).model_copy(update={"position": position})
    except ValueError as error:
        raise Misconfigured(f"the mark in {name_of(place)} cannot be read: use the newest version") from error


async def write_marker(place: Place, marker: MoveMarker, before: MoveMarker) -> MoveMarker:
    """Replaces `before`. Raises Misconfigured if that of a log was changed meanwhile, and TryAgain."""
    body = marker.model_dump_json(exclude={"position"})
    if isinstance(place, Path):
        if marker.state == "here":
            (place / FILE).unlink(missing_ok=True)
            store_folder.sync(place)
        else:
            store_folder.write(place / FILE, body)
        return marker
    try:
        position = await place.append(subjects.STORED_MOVED, body.encode(), after=before.position)
    except AppendConflict as error:
        raise Misconfigured("another command moves these runs: wait until it has ended, then look again") from error
    return marker.model_copy(update={"position": position})


def name_of(place: Place) -> str:
    return str(place) if isinstance(place, Path) else f"the stream {subjects.STREAM_RUNS}"


async def require_complete(place: Place) -> MoveMarker:
    """Raises Misconfigured for a half-restored store, and TryAgain."""
    marker = await read_marker(place)
    if marker.state == "coming":
        raise Misconfigured(
            f"runs are being restored into {name_of(place)}, and that was not finished: run `agentic restore` of "
            f"{marker.archive} again, or begin with a store made anew"
        )
    return marker


async def require_runs_here(place: Place) -> None:
    """An agent checks this before it starts; one of several once it has joined. Raises Misconfigured, and TryAgain."""
    if (await require_complete(place)).state == "left":
        purge = f"run `nats stream purge {subjects.STREAM_RUNS} --subject={subjects.STORED_MOVED}`"
        remedy = f"delete {place / FILE}" if isinstance(place, Path) else purge
        raise Misconfigured(
            f"the runs of {name_of(place)} were exported to be moved: set agent.store to the store that they were "
            f"restored into; or, if they were restored nowhere, {remedy}"
        )


@asynccontextmanager
async def leaving(place: Place) -> AsyncIterator[None]:
    """No agent starts on the store inside, nor after it unless it fails."""
    before = await require_complete(place)
    marker = await write_marker(place, MoveMarker(state="left"), before)
    try:
        yield
    except BaseException:
        await write_marker(place, before, marker)
        raise
