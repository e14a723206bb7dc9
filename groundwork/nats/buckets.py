"""Buckets on the bus: contents too large for a message in an object store, under keys such as `run_01/report.md`; and
values of keys, with their changes. A value is read from its stream's leader: nats-py's own key-value store reads any
copy, which may be stale."""

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import nats.errors
from nats.aio.msg import Msg
from nats.js.api import ObjectInfo, ObjectMeta
from nats.js.errors import APIError, NotFoundError
from nats.js.object_store import ObjectStore

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import WRONG_SEQUENCE, Refused, StoredMessage, failure
from groundwork.service.errors import Failure, GiveUp, Misconfigured, TryAgain

T = TypeVar("T")

LONGEST_KEY = 200
# The client waits for a lost piece for ever.
PATIENCE_SECONDS = 30.0

_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_KEY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_DIGEST_PREFIX = "SHA-256="


class NoSuchArtifact(GiveUp):
    """Nothing is stored under this key, or no longer."""


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

    async def put(self, key: str, data: bytes, content_type: str) -> StoredArtifact:
        """Store `data` unless it is there already. Raises Refused for a key that is no path of plain names."""
        wanted = StoredArtifact(_checked(key), len(data), hashlib.sha256(data).hexdigest())
        store = await self._store()
        there = await self._asked(store.get_info(key))
        if there is None or _stored(there) != wanted:
            # One header has a list of values in the object store's format (NATS ADR-20).
            meta = ObjectMeta(name=key, headers={"Content-Type": [content_type]})
            await self._link.permitted()
            await self._asked(store.put(key, data, meta))
        return wanted

    async def get(self, key: str) -> bytes:
        found = await self._asked((await self._store()).get(_checked(key)))
        if found is None:
            raise NoSuchArtifact(f"no artifact {key} in the bucket {self._name}")
        return found.data or b""

    async def remove(self, key: str) -> None:
        """Forgets the artifact: no mark of it stays, as the client's own delete would leave. There need be none."""
        if found := await self._asked((await self._store()).get_info(_checked(key))):
            await self._link.permitted()
            name = base64.urlsafe_b64encode(key.encode()).decode()
            for part in (f"C.{found.nuid}", f"M.{name}"):  # a content without a name is asked for by none
                purged = {"filter": f"$O.{self._name}.{part}"}
                await self._link.ask_jetstream(f"STREAM.PURGE.OBJ_{self._name}", purged)

    async def list(self, prefix: str = "") -> list[StoredArtifact]:
        found = await self._asked((await self._store()).list(ignore_deletes=True)) or []
        return sorted((_stored(info) for info in found if info.name.startswith(prefix)), key=lambda one: one.key)

    async def _store(self) -> ObjectStore:
        store = await self._asked(self._link.jetstream.object_store(self._name))
        if store is None:
            raise Misconfigured(f"there is no bucket {self._name}: run the setup, which creates it")
        return store

    async def _asked(self, answer: Awaitable[T]) -> T | None:
        what = f"the bucket {self._name} (stream OBJ_{self._name})"
        try:
            return await asyncio.wait_for(answer, PATIENCE_SECONDS)
        except NotFoundError:
            return None
        except APIError as error:
            told = failure(what, vars(error))
            raise told if isinstance(told, TryAgain) else TryAgain(str(told)) from error
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise TryAgain(f"{what} did not answer: {error!r}") from error


def _checked(key: str) -> str:
    if len(key) > LONGEST_KEY or not _KEY.fullmatch(key):
        raise Refused(
            f"not a key for an artifact: {key[:80]!r}. It has to be names of letters, digits and ._- that begin with a"
            f" letter or digit, separated by single slashes, at most {LONGEST_KEY} characters"
        )
    return key


def _stored(info: ObjectInfo) -> StoredArtifact:
    digest = base64.urlsafe_b64decode((info.digest or "").removeprefix(_DIGEST_PREFIX))
    return StoredArtifact(info.name, info.size or 0, digest.hex())


_REMOVED = "KV-Operation"


async def newest(link: NatsLink, bucket: str, key: str) -> StoredMessage:
    """The value of a key as the stream's leader has it, for a change too: its body is empty where there is none, and
    its sequence 0 where there never was one. Raises TryAgain."""
    subject = f"$KV.{bucket}.{key}"
    try:
        found = await link.newest(f"KV_{bucket}", subject)
    except Failure as error:
        raise TryAgain(f"the bucket {bucket}: {error}") from error
    if found is None or _REMOVED in found.headers:
        return StoredMessage(subject, b"", seq=found.seq if found else 0)
    return found


SETTLED_S = 0.25
"""How long after it was written a value may still be read as it was before."""


async def changes(link: NatsLink, bucket: str, key: str, *, every_s: float) -> AsyncGenerator[None, None]:
    """Yields now, whenever somebody writes the value of a key, and when nothing was heard of it for so long."""
    written = asyncio.Event()

    async def heard(_: Msg) -> None:
        written.set()

    await link.subscribe(f"$KV.{bucket}.{key}", heard)
    while True:
        look_again_s = SETTLED_S if written.is_set() else every_s
        written.clear()
        yield
        with suppress(TimeoutError):
            async with asyncio.timeout(look_again_s):
                await written.wait()


async def replaced(link: NatsLink, bucket: str, key: str, body: bytes, *, after: int) -> int | None:
    """Store a value where the newest has sequence `after`; returns its own, None where another was faster. Raises
    TryAgain."""
    try:
        return await link.swap(f"$KV.{bucket}.{key}", body, after=after)
    except Refused as error:
        if error.code == WRONG_SEQUENCE:
            return None
        raise TryAgain(f"{key} cannot be written in the bucket {bucket}: {error}") from error
