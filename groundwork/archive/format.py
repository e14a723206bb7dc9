"""An archive: a zip file with a manifest of SHA-256 sums, signed by the service that made it.

    manifest.json  signature.json  runs.jsonl  RUN/journal.jsonl  RUN/artifacts/…  gateway/manifest.json  …

A content with several names is written once, and not at all if the base has it: an older archive in the same folder.
An archive may come from anybody: nothing is unpacked, reads are bounded, and each content is checked by its SHA-256.
"""

import errno
import hashlib
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured, TryAgain
from groundwork.service.keys import KeyRing, public_of, signature, verifies
from groundwork.service.program import installed_version

FORMAT = 1
MANIFEST, SIGNATURE = "manifest.json", "signature.json"
PURPOSE = "event"
"""Purpose of the derived signing key, whose public half services show."""
SIGNED_AS = b"archive\n"
"""Stands where signed messages have their subject, so no signature of a message fits an archive."""
PART = ".part"
"""Suffix of what is not complete yet."""
LARGEST = 1 << 30
"""Bytes of a content or the manifest."""
MOST_NAMES = 4_000_000
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError, OSError)
"""Errors of reading a damaged or malicious zip file."""

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
T = TypeVar("T")
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Format(_Document):
    format: int = FORMAT


class ArchiveManifest(_Format):
    """`store`: id of the source store. `base`: archive with the contents this one lacks. `moved`: the source store is
    abandoned. `left_out`: reasons by name. `files`: SHA-256 by name."""

    program: str
    at: AwareDatetime
    store: str = ""
    moved: bool = False
    base: Annotated[str, Field(pattern=r"^([\w-]+\.zip)?$")] = ""
    about: dict[str, int] = {}
    left_out: dict[str, str] = {}
    files: dict[str, Hash]


class Signature(_Document):
    """Ed25519 signature over SIGNED_AS and the manifest, by the service's key `key`."""

    key: str
    public: str
    signature: str


Locations = Mapping[str, tuple[zipfile.ZipFile, str]]


class Archive:
    """An open archive. Methods raise Misconfigured for content that cannot be read, or differs from the manifest."""

    def __init__(self, path: Path, manifest: bytes, signed: bytes | None) -> None:
        self.path = path
        self.manifest_text = manifest
        if self.decoded(_Format, MANIFEST, manifest).format > FORMAT:
            raise Misconfigured(f"{path} was made by a newer version of the program: use that one")
        self.manifest = self.decoded(ArchiveManifest, MANIFEST, manifest)
        self.signature = self.decoded(Signature, SIGNATURE, signed) if signed is not None else None
        self._locations: Locations = {}
        self._names = Counter[str]()

    @classmethod
    @contextmanager
    def open(cls, path: Path, *, is_base: bool = False) -> Iterator["Archive"]:
        if not path.is_file():
            whose = "on which others rest: put it back beside them" if is_base else "name the file, or its folder"
            raise Misconfigured(f"there is no archive {path}: {whose}")
        with ExitStack() as stack:
            try:
                opened = stack.enter_context(zipfile.ZipFile(path))
            except _BROKEN as error:
                raise Misconfigured(f"{path} is not an archive, or it is damaged or not yours: {error}") from error
            names = Counter(opened.namelist())
            if len(names) > MOST_NAMES:
                raise Misconfigured(f"{path} has {len(names)} files: an archive has at most {MOST_NAMES}")
            if (manifest := _content(opened, MANIFEST)) is None:
                raise Misconfigured(f"{path} is not an archive, or it is damaged: there is no {MANIFEST} in it")
            archive = cls(path, manifest, _content(opened, SIGNATURE))
            there = {digest: (opened, name) for name, digest in archive.manifest.files.items() if name in names}
            archive._names, archive._locations = names, there
            if archive.manifest.base and not is_base:
                base = stack.enter_context(cls.open(path.with_name(archive.manifest.base), is_base=True))
                archive._locations = {**base._locations, **there}
            yield archive

    def nested(self, folder: str) -> "Archive | None":
        """The archive of another service that was included under `folder`."""
        manifest, signed = f"{folder}/{MANIFEST}", f"{folder}/{SIGNATURE}"
        if manifest not in self.manifest.files:
            return None
        found = Archive(self.path, self.read(manifest), self.read(signed) if signed in self.manifest.files else None)
        found._locations = self._locations
        return found

    def read(self, name: str) -> bytes:
        if name not in self.manifest.files:
            raise Misconfigured(f"{self.path} has no {name}: it is another kind of archive")
        if (content := self._content(self.manifest.files[name])) is None:
            raise Misconfigured(f"{self.path} is damaged: {name} was changed. Use another copy")
        return content

    def lines(self, name: str) -> list[bytes]:
        return self.read(name).splitlines()

    def flaws(self) -> Iterator[tuple[str, str]]:
        """Differences from the manifest: name, and text."""
        for name, times in self._names.items():
            if times > 1:
                yield name, "is there more than once"
            elif name not in self.manifest.files and name not in (MANIFEST, SIGNATURE):
                yield name, "is not a file of this archive"
        for name, digest in self.manifest.files.items():
            if self._content(digest) is None:
                yield name, "is not what was written: its hash differs" if name in self._names else "is not there"

    def _content(self, digest: str) -> bytes | None:
        place = self._locations.get(digest)
        content = _content(*place) if place else None
        return content if content is not None and hashlib.sha256(content).hexdigest() == digest else None

    def is_signed(self) -> bool:
        by = self.signature
        return by is not None and verifies(by.public, by.signature, SIGNED_AS + self.manifest_text)

    def prove(self, ring: KeyRing) -> None:
        """Raises Misconfigured unless a key of the ring has signed it."""
        publics = {public_of(key.derived(PURPOSE)) for key in ring.keys}
        if self.signature is None or self.signature.public not in publics or not self.is_signed():
            raise Misconfigured(
                f"what {self.path} says was not said with these keys: it was changed by other hands, or is of another "
                "installation. Restore the keys file that it was made with"
            )

    def decoded(self, kind: type[T], name: str, text: bytes) -> T:
        try:
            read: T = _adapter(kind).validate_json(text)
        except ValidationError as error:
            why = "is damaged, or another version wrote it: take another backup, or the version that made this one"
            raise Misconfigured(f"{self.path}: {name} {why}") from error
        return read


def _content(opened: zipfile.ZipFile, name: str) -> bytes | None:
    try:
        with opened.open(name) as member:
            content = member.read(LARGEST + 1)
    except (*_BROKEN, KeyError):
        return None
    return content if len(content) <= LARGEST else None


class ArchiveWriter:
    """Writes contents that the base lacks. `fields`: of the manifest. `size`: compressed bytes of new contents. `held`:
    digests that are here or in the base."""

    def __init__(self, path: Path, opened: zipfile.ZipFile, base: Archive | None) -> None:
        self.path, self.opened, self.base = path, opened, base
        self.files = dict[str, str]()
        self.fields: dict[str, Any] = {"at": datetime.now(UTC)}
        self.size = 0
        self.held = set(base.manifest.files.values()) if base else set[str]()

    def add(self, name: str, content: bytes) -> None:
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self.held:
            self.opened.writestr(name, content)
            self.held.add(digest)
            self.size += self.opened.getinfo(name).compress_size
        self.files[name] = digest

    def add_lines(self, name: str, lines: Iterable[bytes]) -> None:
        self.add(name, b"".join(line + b"\n" for line in lines))

    def copy(self, name: str, other: Archive) -> None:
        if (digest := other.manifest.files[name]) in self.held:
            self.files[name] = digest
        else:
            self.add(name, other.read(name))

    def include(self, folder: str, other: Archive) -> None:
        for name in other.manifest.files:
            self.add(f"{folder}/{name}", other.read(name))
        self.add(f"{folder}/{MANIFEST}", other.manifest_text)
        if other.signature:
            self.add(f"{folder}/{SIGNATURE}", other.signature.model_dump_json().encode())

    def finish(self, ring: KeyRing | None) -> None:
        base = self.base.path.name if self.base else ""
        manifest = ArchiveManifest(program=installed_version(), base=base, files=self.files, **self.fields)
        text = manifest.model_dump_json(indent=1).encode()
        self.opened.writestr(MANIFEST, text)
        if ring:
            key = ring.keys[0]
            seed = key.derived(PURPOSE)
            signed = Signature(key=key.id, public=public_of(seed), signature=signature(seed, SIGNED_AS + text))
            self.opened.writestr(SIGNATURE, signed.model_dump_json())


@contextmanager
def open_writer(path: Path, ring: KeyRing | None, base: Archive | None = None) -> Iterator[ArchiveWriter]:
    """Makes the archive, for this user alone: complete or not at all. Without a ring it is not signed. Raises
    Misconfigured, OSError, and TryAgain on a full disk."""
    if path.exists():
        raise Misconfigured(f"{path} is there already, and nothing is overwritten: name another file")
    if not path.parent.is_dir():
        raise Misconfigured(f"there is no folder {path.parent}: make it, or correct the path. Nothing was written")
    part = path.with_name(f"{path.name}{PART}-{token_hex(4)}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
                writer = ArchiveWriter(path, opened, base)
                yield writer
                writer.finish(ring)
            file.flush()
            os.fsync(file.fileno())
        _publish(part, path)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise TryAgain(f"no room for {path}: nothing was written. Free space, or name another place") from error
    finally:
        with suppress(OSError):
            part.unlink()


def _publish(part: Path, path: Path) -> None:
    """Raises Misconfigured for a file that appeared meanwhile."""
    try:
        path.hardlink_to(part)
    except FileExistsError:
        raise Misconfigured(f"{path} was made by another meanwhile, and nothing is overwritten") from None
    except OSError:  # a file system without links
        part.rename(path)
    with suppress(PermissionError):  # the archive is there, and its folder may be written but not read
        store_folder.sync(path.parent)
