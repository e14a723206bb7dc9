"""Contents too large for a message, in a bucket of the NATS object store, under keys such as `run_01/report.md`."""

import asyncio
import base64
import hashlib
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

import nats.errors
from nats.js.api import ObjectInfo, ObjectMeta
from nats.js.errors import APIError, NotFoundError
from nats.js.object_store import ObjectStore

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Refused, failure
from groundwork.service.errors import GiveUp, Misconfigured, TryAgain

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
