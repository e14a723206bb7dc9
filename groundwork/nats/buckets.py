"""Object-store buckets for artifacts, under keys such as `run_01/report.md`, and key-value buckets with their changes.

Their formats are those of NATS (ADR-20 and ADR-8). Values are read from the stream's leader: nats-py's key-value store
reads any replica, which may be stale, and its list of objects ends the connection where subjects of acknowledgements
name an account (2.16, ADR-15).
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial

from nats.aio.msg import Msg
from nats.js.api import ObjectInfo

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import EXPECTED, WRONG_SEQUENCE, BusRefused, StoredMessage
from groundwork.nats.shared_log import stored_by_now
from groundwork.service.errors import Failure, NameTaken, NoRoom, TryAgain
from groundwork.service.machine import set_within, token_hex, utc_now

LONGEST_KEY = 200
CHUNK_BYTES = 128 * 1024
STORED_WITHIN_S = 5.0
WRITTEN_WITHIN_S = 2.0
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
    """An existing bucket. All methods raise TryAgain and Misconfigured, `put` also NoRoom."""

    def __init__(self, link: NatsLink, name: str) -> None:
        self._link = link
        self._name = name
        self._stream = f"OBJ_{name}"

    async def put(self, key: str, data: bytes, content_type: str, *, over: bool = True) -> None:
        """Stores `data` unless it is there already; `over` other content. Raises BusRefused for a key that is no path
        of plain names, and NameTaken."""
        if len(key) > LONGEST_KEY or not _KEY.fullmatch(key):
            raise BusRefused(
                f"not a key for an artifact: {key[:80]!r}. It has to be names of letters, digits and ._- that begin"
                f" with a letter or digit, separated by single slashes, at most {LONGEST_KEY} characters"
            )
        made, (found, _) = self._described(key, data, content_type), await self._complete(key)
        if found and _stored(found) == _stored(made):
            return
        if found and not over:
            raise NameTaken(f"{key} is the key of another artifact")
        store = partial(self._link.store, within_s=0.0, try_s=STORED_WITHIN_S)
        try:
            for at in range(0, len(data), CHUNK_BYTES):
                await store(self._chunks(made), data[at : at + CHUNK_BYTES], {})
            await store(self._name_of(key), json.dumps(made.as_dict()).encode(), {"Nats-Rollup": "sub"})
        except (TryAgain, BusRefused) as error:
            with contextlib.suppress(Failure):
                await self._purge(self._chunks(made))
            kind = NoRoom if isinstance(error, NoRoom) else TryAgain
            raise kind(f"stream {self._stream}: {error}") from error
        if found:
            await self._purge(self._chunks(found))

    async def get(self, key: str) -> bytes | None:
        found, content = await self._complete(key)
        if found is None:
            return None
        if len(content) < (found.size or 0):
            chunks = stored_by_now(self._link, self._stream, self._chunks(found))
            content = b"".join([chunk.body async for chunk in chunks])
        if hashlib.sha256(content).hexdigest() != _stored(found).sha256:
            raise TryAgain(f"{key} in the bucket {self._name} is not what its description says: it is being replaced")
        return content

    async def remove(self, key: str) -> None:
        """Purges the artifact. A marker for each one would stay forever."""
        if found := await self._found(key):
            await self._link.guard()
            await self._purge(self._chunks(found))  # first: without its name nothing refers to it
            await self._purge(self._name_of(key))

    async def list(self) -> list[StoredArtifact]:
        names = stored_by_now(self._link, self._stream, f"$O.{self._name}.M.>")
        found = [_read(message) async for message in names]
        return sorted((_stored(one) for one in found if not one.deleted), key=lambda one: one.key)

    def _described(self, key: str, data: bytes, content_type: str) -> ObjectInfo:
        digest = _DIGEST_PREFIX + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
        size, at, headers = len(data), utc_now().isoformat(), {"Content-Type": [content_type]}
        return ObjectInfo(key, self._name, token_hex(11), size, at, -(-size // CHUNK_BYTES), digest, headers=headers)

    def _chunks(self, info: ObjectInfo) -> str:
        return f"$O.{self._name}.C.{info.nuid}"

    def _name_of(self, key: str) -> str:
        return f"$O.{self._name}.M.{base64.urlsafe_b64encode(key.encode()).decode()}"

    async def _purge(self, subject: str) -> None:
        await self._link.ask_jetstream(f"STREAM.PURGE.{self._stream}", {"filter": subject})

    async def _found(self, key: str) -> ObjectInfo | None:
        message = await self._link.newest(self._stream, self._name_of(key))
        found = _read(message) if message else None
        return None if found and found.deleted else found

    async def _complete(self, key: str) -> tuple[ObjectInfo | None, bytes]:
        """Description of an artifact and its last chunk, unless its content was removed: a kill may come before the
        name goes, too."""
        found = await self._found(key)
        if not found or not found.size:
            return found, b""
        if last := await self._link.newest(self._stream, self._chunks(found)):
            return found, last.body
        now = await self._found(key)
        if now and now.nuid != found.nuid:
            raise TryAgain(f"{key} in the bucket {self._name} is being replaced")
        return None, b""


def _read(message: StoredMessage) -> ObjectInfo:
    info: ObjectInfo = ObjectInfo.from_response(json.loads(message.body))
    return info


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
    """Stores a value if the newest one has sequence `after`; one attempt, without the guard. Returns the new sequence,
    or None if another writer was faster, or an earlier attempt of ours. Raises TryAgain."""
    try:
        expected, once = {EXPECTED: str(after)}, partial(link.store, within_s=0.0, try_s=WRITTEN_WITHIN_S)
        return (await once(f"$KV.{bucket}.{key}", body, expected, guarded=False)).seq
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
