"""Files of a run's workspace, as downloads: no browser shows one as a page of this service, and none comes in parts."""

from collections.abc import Awaitable
from pathlib import PurePosixPath
from typing import TypeVar

from fastapi.responses import Response
from pydantic import BaseModel

from agent_service.api.refusals import Refusal
from agent_service.telling.folder.disk import TooLarge, Unsafe
from agent_service.telling.folder.run_files import ArtifactChanged, RunFiles
from agent_service.telling.folder.staging import IllegalName
from agent_service.telling.folder.workspace import Listing

BYTES = "application/octet-stream"
TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
"""By suffix; everything else is bytes, whatever it calls itself."""

T = TypeVar("T")


class FileLine(BaseModel):
    """`size` is in bytes; `sha256` in hex, null for a file that is too large to be hashed for a list."""

    path: str
    size: int
    sha256: str | None


class FileList(BaseModel):
    """What lies in a run's folder; `foreign` are names that are none of its files, such as links."""

    run_id: str
    files: tuple[FileLine, ...]
    foreign: tuple[str, ...]


async def listed(files: RunFiles, run_id: str) -> FileList:
    """The files of a run, none where it has no folder yet. Refuses (404) what can be no run."""
    found = await _of_disk(files.files(run_id)) or Listing(files=(), foreign=())
    lines = tuple(FileLine(path=file.path, size=file.size, sha256=file.sha256) for file in found.files)
    return FileList(run_id=run_id, files=lines, foreign=found.foreign)


async def download(files: RunFiles, run_id: str, path: str) -> Response:
    """One file. Refuses with 404, and with 409 for what is too large to be sent or not what the journal recorded."""
    content = await _of_disk(files.read(run_id, path))
    if content is None:
        raise _no_file()
    name = PurePosixPath(path)
    headers = {"Content-Disposition": f'attachment; filename="{name.name}"', "Accept-Ranges": "none"}
    return Response(content, headers=headers, media_type=TYPES.get(name.suffix, BYTES))


async def _of_disk(reading: Awaitable[T]) -> T:
    try:
        return await reading
    except (IllegalName, Unsafe) as error:
        raise _no_file() from error
    except TooLarge as error:
        raise Refusal(409, "too_large_to_send", "the file is too large to be sent: take it from the disk") from error
    except ArtifactChanged as error:
        raise Refusal(
            409, "artifact_changed", f"{error}: somebody has replaced it, and it is not handed out"
        ) from error


def _no_file() -> Refusal:
    return Refusal(404, "no_such_file", "the run has no such file: its workspace lists those it has")
