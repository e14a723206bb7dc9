"""Where the runs are, in a shared log or in one agent's store, so that never two go on with them.

    coming ─▶ here          from the store of one agent into the log
    here ─▶ leaving ─▶ left  from the log into the store of one agent

A log without a mark has its runs here. Each step is said before the next, so the same command finishes a move.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent_service.store.shared_log.ownership import Log
from groundwork.backup.told import backup_in
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from schemas import subjects

FILE = "moved.json"
"""In the folder of a store whose runs are in the log now."""
TO_LOG = "agentic migrate --from sqlite --to jetstream"
TO_FILE = "agentic migrate --from jetstream --to sqlite"


class Mark(BaseModel):
    """`store`: the id of the store that they come from or leave for, or of the backup. `position`: of this mark."""

    model_config = ConfigDict(frozen=True)

    state: Literal["coming", "here", "leaving", "left"] = "here"
    store: str = ""
    position: int = 0


async def mark_in(log: Log) -> Mark:
    """The newest. Raises TryAgain, and Misconfigured for one that no version known to this program wrote."""
    fact = await log.newest(subjects.STORED_MOVED)
    if fact is None:
        return Mark()
    try:
        return Mark.model_validate_json(fact.body).model_copy(update={"position": fact.seq})
    except ValidationError as error:
        raise Misconfigured(
            f"{subjects.STORED_MOVED} cannot be read: a newer version wrote it, or no agent did. Use the newest version"
        ) from error


async def put_mark(log: Log, mark: Mark, before: Mark) -> Mark:
    """In the place of `before`. Raises Moved where another has changed it meanwhile, and TryAgain."""
    body = mark.model_dump_json(exclude={"position"}).encode()
    position = await log.append(subjects.STORED_MOVED, body, after=before.position)
    return mark.model_copy(update={"position": position})


def command_of(mark: Mark) -> str:
    backup = backup_in(mark.store)
    into_log = f"agentic restore FILE --backup {backup}" if backup else TO_LOG
    return into_log if mark.state in ("coming", "here") else TO_FILE


async def refuse_unless_here(log: Log) -> None:
    """To be asked by an agent that has joined, before it begins. Raises Misconfigured, and TryAgain."""
    mark = await mark_in(log)
    if mark.state in ("coming", "leaving"):
        raise Misconfigured(
            f"the runs of this store are being moved, and that was not finished: run `{command_of(mark)}` again"
        )
    if mark.state == "left":
        raise Misconfigured(
            f"the runs of this store were moved to the SQLite store {mark.store}: start that agent, or bring them back "
            f"with `{TO_LOG}`, into a stream made anew"
        )


def refuse_moved_away(folder: Path) -> None:
    if (folder / FILE).exists():
        raise Misconfigured(
            f"the runs of {folder} were moved to the stream {subjects.STREAM_RUNS}: set agent.store: jetstream; or "
            f"bring them back with `{TO_FILE}`"
        )


def mark_moved_away(folder: Path) -> None:
    store_folder.write(folder / FILE, f'{{"stream": "{subjects.STREAM_RUNS}"}}\n')


def mark_brought_back(folder: Path) -> None:
    (folder / FILE).unlink(missing_ok=True)
