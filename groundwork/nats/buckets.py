"""Object-store buckets for artifacts, under keys such as `run_01/report.md`, and key-value buckets with their changes.

Values are read from the stream's leader: nats-py's key-value store reads any replica, which may be stale.
"""

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable
from dataclasses import dataclass
from typing import TypeVar

import nats.errors
from nats.aio.msg import Msg
from nats.js.api import ObjectInfo, ObjectMeta
from nats.js.errors import APIError, NotFoundError
from nats.js.object_store import ObjectStore

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import WRONG_SEQUENCE, BusRefused, StoredMessage, jetstream_failure
from groundwork.service.errors import Failure, Misconfigured, NameTaken, TryAgain
from groundwork.service.machine import set_within

T = TypeVar("T")

LONGEST_KEY = 200
PATIENCE_SECONDS = 30.0
"""Timeout of an answer, or of the next chunk."""
SETTLED_S = 0.25
"""After this time every replica has a value that was written."""

_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_KEY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_DIGEST_PREFIX = "SHA-256="
_REMOVED = "KV-Operation"


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    key: str
    size: int
    sha256: str


class ArtifactBucket:
    """An existing bucket. All methods raise TryAgain when the server does not answer, `put` also NoRoom."""

    def __init__(self, link: NatsLink, name: str) -> None:
        self._link = link
        self._name = name

    async def put(self, key: str, data: bytes, content_type: str, *, over: bool = True) -> None:
        """Stores `data` unless it is there already; `over` other content. Raises BusRefused for a key that is no path
        of plain names, and NameTaken."""
        if len(key) > LONGEST_KEY or not _KEY.fullmatch(key):
            raise BusRefused(
                f"not a key for an artifact: {key[:80]!r}. It has to be names of letters, digits and ._- that begin"
                f" with a letter or digit, separated by single slashes, at most {LONGEST_KEY} characters"
            )
        wanted = StoredArtifact(key, len(data), hashlib.sha256(data).hexdigest())
        store = await self._store()
        found, _ = await self._complete(key)
        if found and not over and _stored(found) != wanted:
            raise NameTaken(f"{key} is the key of another artifact")
        if found is None or _stored(found) != wanted:
            # The object store's format maps a header to a list of values (NATS ADR-20).
            meta = ObjectMeta(name=key, headers={"Content-Type": [content_type]})
            await self._link.guard()
            # nats-py limits the time of each chunk, and removes those of a put that fails, not of a cancelled one.
            await self._answer(store.put(key, data, meta), within_s=None)

    async def get(self, key: str) -> bytes | None:
        found, chunk = await self._complete(key)
        if found is None:
            return None
        content = bytearray()
        while chunk:
            content += chunk.body
            chunk = await self._chunk(found, chunk.seq + 1) if len(content) < (found.size or 0) else None
        if hashlib.sha256(content).hexdigest() != _stored(found).sha256:
            raise TryAgain(f"{key} in the bucket {self._name} is not what its description says: it is being replaced")
        return bytes(content)

    async def remove(self, key: str) -> None:
        """Purges the artifact. nats-py's delete would leave a marker for each one forever."""
        if found := await self._answer((await self._store()).get_info(key)):
            await self._link.guard()
            name = base64.urlsafe_b64encode(key.encode()).decode()
            # Content first: without its name nothing refers to it.
            for subject in (self._chunks(found), f"$O.{self._name}.M.{name}"):
                await self._link.ask_jetstream(f"STREAM.PURGE.OBJ_{self._name}", {"filter": subject})

    async def list(self) -> list[StoredArtifact]:
        found = await self._answer((await self._store()).list(ignore_deletes=True)) or []
        return sorted(map(_stored, found), key=lambda one: one.key)

    def _chunks(self, found: ObjectInfo) -> str:
        return f"$O.{self._name}.C.{found.nuid}"

    async def _chunk(self, found: ObjectInfo, seq: int) -> StoredMessage | None:
        return await self._link.first_from(seq, f"OBJ_{self._name}", self._chunks(found))

    async def _complete(self, key: str) -> tuple[ObjectInfo | None, StoredMessage | None]:
        """Description of an artifact and its first chunk, unless its content was removed: a kill may come before the
        name goes, too."""
        store = await self._store()
        found = await self._answer(store.get_info(key))
        if not found or not found.size:
            return found, None
        if first := await self._chunk(found, 1):
            return found, first
        now = await self._answer(store.get_info(key))
        if now and now.nuid != found.nuid:
            raise TryAgain(f"{key} in the bucket {self._name} is being replaced")
        return None, None

    async def _store(self) -> ObjectStore:
        store = await self._answer(self._link.jetstream.object_store(self._name))
        if store is None:
            raise Misconfigured(f"there is no bucket {self._name}: run the setup, which creates it")
        return store

    async def _answer(self, answer: Awaitable[T], *, within_s: float | None = PATIENCE_SECONDS) -> T | None:
        """Returns None for what is not found."""
        what = f"the bucket {self._name} (stream OBJ_{self._name})"
        try:
            return await asyncio.wait_for(answer, within_s)
        except NotFoundError:
            return None
        except APIError as error:
            told = jetstream_failure(what, vars(error))
            raise told if isinstance(told, TryAgain) else TryAgain(str(told)) from error
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise TryAgain(f"{what} did not answer: {error!r}") from error


def _stored(info: ObjectInfo) -> StoredArtifact:
    digest = base64.urlsafe_b64decode((info.digest or "").removeprefix(_DIGEST_PREFIX))
    return StoredArtifact(info.name, info.size or 0, digest.hex())


async def read_value(link: NatsLink, bucket: str, key: str) -> StoredMessage:
    """Newest value of a key. Its body is empty if there is no value; its sequence is 0 if there never was one.
    Raises TryAgain."""
    subject = f"$KV.{bucket}.{key}"
    try:
        found = await link.newest(f"KV_{bucket}", subject)
    except Failure as error:
        raise TryAgain(f"the bucket {bucket}: {error}") from error
    if found is None or _REMOVED in found.headers:
        return StoredMessage(subject, b"", seq=found.seq if found else 0)
    return found


async def replace_value(link: NatsLink, bucket: str, key: str, body: bytes, *, after: int) -> int | None:
    """Stores a value if the newest one has sequence `after`. Returns the new sequence, or None if another writer was
    faster. Raises TryAgain."""
    try:
        return await link.swap(f"$KV.{bucket}.{key}", body, after=after)
    except BusRefused as error:
        if error.code == WRONG_SEQUENCE:
            return None
        raise TryAgain(f"{key} cannot be written in the bucket {bucket}: {error}") from error


async def watch_value(link: NatsLink, bucket: str, key: str, *, every_s: float) -> AsyncGenerator[None, None]:
    """Yields now, after each write of the key, and when `every_s` passed without one."""
    written = asyncio.Event()

    async def on_write(_: Msg) -> None:
        written.set()

    await link.subscribe(f"$KV.{bucket}.{key}", on_write)
    while True:
        pause_s = SETTLED_S if written.is_set() else every_s
        written.clear()
        yield
        await set_within(written, pause_s)
