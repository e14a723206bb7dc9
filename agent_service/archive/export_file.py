"""The file of exported runs: a zip archive with a manifest of SHA-256 sums, which the agent signs byte for byte.

    manifest.json  signature.json  RUN/journal.jsonl  RUN/plan.md …  RUN/artifacts/…

A file that is read may come from anybody: names are matched, nothing is unpacked, and sizes are bounded.
"""

import errno
import hashlib
import io
import os
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_service.core.waiting import Status
from agent_service.run.journal import Entry
from agent_service.views.folder.disk import TooLarge
from agent_service.views.folder.names import IllegalName, checked, place_of
from agent_service.views.folder.workspace import MAX_BYTES, Listed, Listing
from groundwork.service.errors import Misconfigured, TryAgain
from schemas.fields import Instant, flaws_of
from schemas.signing import KeyId, PublicKey

FORMAT = 1
MANIFEST, SIGNATURE, JOURNAL = "manifest.json", "signature.json", "journal.jsonl"
SIGNED_AS = "export"
"""In the place of a subject: no message of the bus has it."""

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ExportedRun(_Said):
    """`head`: hash of its newest entry, in hex. `left_out`: artifacts and children not in the file, and why."""

    run_id: str
    wake_id: str
    accepted_at: Instant
    status: Status
    version: Annotated[int, Field(ge=1)]
    head: Hash
    left_out: dict[str, str] = {}


class Manifest(_Said):
    """`runs`: the one that was asked for, then those that it started, and theirs. `files`: SHA-256 by name."""

    format: int = FORMAT
    program: str
    at: Instant
    runs: Annotated[tuple[ExportedRun, ...], Field(min_length=1)]
    files: dict[str, Hash]


class Signature(_Said):
    """Ed25519 by the agent's key `key`, with its public half, over SIGNED_AS, a line feed and the manifest."""

    key: KeyId
    public: PublicKey
    signature: str


class WrittenEntry(_Said):
    seq: int
    at: Instant
    kind: str
    event: str
    facts: str
    previous: Hash
    hash: Hash


LONGEST_JOURNAL = 1 << 30
"""Bytes."""
MOST_FILES = 100_000
MOST_BYTES = 4 << 30
"""Of all files of an export together, unpacked."""
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError)
"""What reading an archive raises that was damaged, or made to do harm."""

T = TypeVar("T", bound=BaseModel)


def written(path: Path, manifest: bytes, signature: bytes | None, files: Mapping[str, bytes]) -> None:
    """Make the file, for this user alone: whole, or not at all. Raises Misconfigured, and TryAgain on a full disk."""
    if path.exists():
        raise Misconfigured(f"{path} is there already, and nothing is overwritten: name another file")
    if not path.parent.is_dir():
        raise Misconfigured(f"there is no folder {path.parent}: make it, or correct the path. Nothing was exported")
    part = path.with_name(f"{path.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
            with zipfile.ZipFile(opened, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(MANIFEST, manifest)
                if signature:
                    archive.writestr(SIGNATURE, signature)
                for name, content in files.items():
                    archive.writestr(name, content)
            opened.flush()
            os.fsync(opened.fileno())
        part.rename(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TryAgain(f"no room for {path}: nothing was exported. Free space, or name another place") from error
        raise Misconfigured(f"{path} cannot be written ({error.strerror}), so nothing was exported") from error
    finally:
        with suppress(OSError):
            part.unlink()


def journal_of(entries: Iterable[Entry]) -> bytes:
    fields = WrittenEntry.model_fields
    lines = (WrittenEntry(**{name: getattr(entry, name) for name in fields}).model_dump_json() for entry in entries)
    return "".join(f"{line}\n" for line in lines).encode()


class ExportFile:
    """An open file of exported runs. Each method raises Misconfigured where it cannot be read."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self._check_size()
        self.names = Counter(archive.namelist())
        """How often each is there."""
        self._folders = defaultdict[str, list[str]](list)
        for name in self.names:
            run_id, _, below = name.partition("/")
            self._folders[run_id].append(below)
        self.manifest_text = self.read(MANIFEST, MAX_BYTES)
        self.manifest = self._decoded(Manifest, MANIFEST, self.manifest_text)
        if self.manifest.format > FORMAT:
            raise Misconfigured(f"{path} was made by a newer version of the program: use that one")
        self.run_ids = Counter(run.run_id for run in self.manifest.runs)

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["ExportFile"]:
        if not path.is_file():
            raise Misconfigured(f"there is no file {path}: name one that `agentic export` has made")
        try:
            with zipfile.ZipFile(path) as archive:
                yield cls(path, archive)
        except zipfile.BadZipFile as error:
            raise Misconfigured(f"{path} is no file of exported runs, or it is damaged: {error}") from error

    def _check_size(self) -> None:
        files = self._archive.infolist()
        size = sum(file.file_size for file in files)
        if len(files) > MOST_FILES or size > MOST_BYTES:
            most = f"an export has at most {MOST_FILES} of {MOST_BYTES}"
            raise Misconfigured(f"{self.path} has {len(files)} files of {size} bytes: {most}")

    def signature(self) -> Signature | None:
        if SIGNATURE not in self.names:
            return None
        return self._decoded(Signature, SIGNATURE, self.read(SIGNATURE, MAX_BYTES))

    def entries(self, run_id: str) -> list[Entry]:
        name = f"{run_id}/{JOURNAL}"
        lines = io.BytesIO(self.read(name, LONGEST_JOURNAL))
        decoded = (self._decoded(WrittenEntry, name, line) for line in lines)
        return [Entry(run_id=run_id, **dict(entry)) for entry in decoded]

    def folder(self, run_id: str) -> "FolderInFile":
        return FolderInFile(self, run_id)

    def below(self, run_id: str) -> list[str]:
        return self._folders.get(run_id, [])

    def hash_of(self, name: str) -> str:
        """The SHA-256 of a file in it, in hex; empty where it cannot be read, which tells as much, or has no end."""
        whole = hashlib.sha256()
        try:
            with self._archive.open(name) as opened:
                while (piece := opened.read(1 << 20)) and opened.tell() <= LONGEST_JOURNAL:
                    whole.update(piece)
        except (*_BROKEN, KeyError):
            return ""
        return "" if piece else whole.hexdigest()

    def read(self, name: str, limit: int) -> bytes:
        try:
            with self._archive.open(name) as opened:
                content = opened.read(limit + 1)
        except KeyError as error:
            raise Misconfigured(f"{self.path} is no file of exported runs: there is no {name} in it") from error
        except _BROKEN as error:
            raise Misconfigured(f"{self.path} is damaged: {name} cannot be read ({error}). Use another copy") from error
        if len(content) > limit:
            raise Misconfigured(f"{self.path}: {name} is larger than {limit} bytes, which no export makes")
        return content

    def _decoded(self, kind: type[T], name: str, text: bytes) -> T:
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            raise Misconfigured(f"{self.path}: {name} cannot be read: {flaws_of(error, most=1)}") from error


class FolderInFile:
    def __init__(self, file: ExportFile, run_id: str) -> None:
        self._file = file
        self._below = f"{checked(run_id)}/"

    def files(self, run_id: str) -> Listing:
        listed, foreign = [], []
        for name in sorted(set(self._file.below(run_id)) - {JOURNAL}):
            try:
                place_of(name)
                content = self._file.read(f"{self._below}{name}", MAX_BYTES)
                listed.append(Listed(path=name, size=len(content), sha256=hashlib.sha256(content).hexdigest()))
            except IllegalName:
                foreign.append(name)
        return Listing(files=tuple(listed), foreign=tuple(foreign))

    def read(self, run_id: str, path: str) -> bytes | None:
        del run_id
        if f"{self._below}{path}" not in self._file.names:
            return None
        try:
            return self._file.read(f"{self._below}{path}", MAX_BYTES)
        except Misconfigured as error:
            raise TooLarge(0, str(error)) from error
