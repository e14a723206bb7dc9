"""A batch of files for the workspace: written aside, synced, renamed; two syncs in all."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Self

from agent_service.telling.folder.disk import (
    TooLarge,
    Unsafe,
    clear,
    content,
    folder,
    make_folder,
    sync_file_system,
    write_new,
)
from agent_service.telling.outputs import FILES, is_artifact_path

STAGING = ".staging"
ARTIFACTS = "artifacts"

Files = Mapping[str, bytes]
"""Contents by path below the run's folder."""

_RUN_ID = re.compile(r"run_[0-9A-HJKMNP-TV-Z]{26}")


class IllegalName(ValueError):
    """No run and no file of a run may have this name; nothing was touched."""


def checked(run_id: str) -> str:
    """The run's folder below the root. Raises IllegalName for what is not `run_` and a ULID."""
    if not is_run(run_id):
        raise IllegalName(f"{run_id[:80]!r} is no run id of ours ({_RUN_ID.pattern}): it has no folder")
    return run_id


def is_run(name: str) -> bool:
    return bool(_RUN_ID.fullmatch(name))


def place_of(path: str) -> tuple[str, str]:
    """Folder (empty for the run's own) and name of a file. Raises IllegalName."""
    if path in FILES:
        return "", path
    if is_artifact_path(path):
        return ARTIFACTS, path.removeprefix(f"{ARTIFACTS}/")
    raise IllegalName(f"{path[:120]!r} is no file of a run: it has {', '.join(FILES)} and {ARTIFACTS}/<name>")


@dataclass(frozen=True, slots=True)
class _Staged:
    temporary: str
    run_id: str
    place: int
    name: str


class Batch:
    """For open folders that only the caller uses, on one file system."""

    def __init__(self, root: int, staging: int) -> None:
        self._root = root
        self._staging = staging
        self._names = count()
        self._staged: list[_Staged] = []
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        clear(self._staging)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
        clear(self._staging)

    def stage(self, run_id: str, files: Files) -> None:
        """All of what differs, or the run leaves the batch. Raises IllegalName; OSError (unsafe folder, full disk)."""
        name = checked(run_id)
        try:
            run = self._opened.enter_context(folder(name, beneath=self._root))
        except FileNotFoundError:
            self._staged.append(self._new_folder(run_id, files))
        else:
            self._staged += self._changed_files(run_id, run, files)

    def publish(self) -> dict[str, Exception]:
        """Returns the ids of runs whose files could not be renamed. Raises OSError where the disk failed as a whole."""
        if not self._staged:
            return {}
        sync_file_system(self._root)
        failed = dict(filter(None, map(self._rename, self._staged)))
        sync_file_system(self._root)
        return failed

    def _new_folder(self, run_id: str, files: Files) -> _Staged:
        temporary = str(next(self._names))
        make_folder(temporary, beneath=self._staging)
        with folder(temporary, beneath=self._staging) as run, ExitStack() as opened:
            for place, name, data in _located(files, run, opened):
                write_new(name, data, beneath=place)
        return _Staged(temporary, run_id, self._root, run_id)

    def _changed_files(self, run_id: str, run: int, files: Files) -> list[_Staged]:
        staged = []
        for place, name, data in _located(files, run, self._opened):
            if not _is(data, name, beneath=place):
                temporary = str(next(self._names))
                write_new(temporary, data, beneath=self._staging)
                staged.append(_Staged(temporary, run_id, place, name))
        return staged

    def _rename(self, file: _Staged) -> tuple[str, Exception] | None:
        try:
            os.rename(file.temporary, file.name, src_dir_fd=self._staging, dst_dir_fd=file.place)
        except OSError as error:
            return file.run_id, error
        return None


def _located(files: Files, run: int, opened: ExitStack) -> Iterator[tuple[int, str, bytes]]:
    places = {"": run}
    for path, data in files.items():
        place, name = place_of(path)
        if place not in places:
            make_folder(place, beneath=run)
            places[place] = opened.enter_context(folder(place, beneath=run))
        yield places[place], name, data


def _is(data: bytes, name: str, *, beneath: int) -> bool:
    try:
        return content(name, beneath=beneath, limit=len(data)) == data
    except (Unsafe, TooLarge, FileNotFoundError):
        return False
