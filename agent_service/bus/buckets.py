"""Buckets on the bus: artifacts (`artifacts/<name>` of a run is `<run_id>/<name>`), the kill switch, shared limits."""

import hashlib
import logging
import mimetypes
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agent_service.admission.claims import Amounts
from agent_service.errors import ArtifactReplaced
from agent_service.history.results import recorded_artifacts
from agent_service.run.ports import RunArtifacts
from agent_service.store.runs import RunStore
from groundwork.nats.buckets import ArtifactBucket, read_value, replace_value
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, GiveUp, Misconfigured, TryAgain
from schemas import subjects
from schemas.status import SUBJECT, Halt

FOLDER = "artifacts/"

log = logging.getLogger(__name__)


def key_of(run_id: str, path: str) -> str:
    return f"{run_id}/{path.removeprefix(FOLDER)}"


class NatsArtifactStore:
    def __init__(self, link: NatsLink) -> None:
        self._bucket = ArtifactBucket(link, subjects.ARTIFACT_BUCKET)

    async def get(self, run_id: str, path: str) -> bytes | None:
        with _retryable():
            return await self._bucket.get(key_of(run_id, path)) if path.startswith(FOLDER) else None

    async def put(self, run_id: str, path: str, content: bytes) -> None:
        content_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
        with _retryable():
            await self._bucket.put(key_of(run_id, path), content, content_type)

    async def remove(self, run_id: str, path: str) -> None:
        with _retryable():
            await self._bucket.remove(key_of(run_id, path))

    async def sizes(self) -> Mapping[str, int]:
        sizes = Counter[str]()
        with _retryable():
            for stored in await self._bucket.list():
                sizes[stored.key.partition("/")[0]] += stored.size
        return sizes


class ProvenArtifacts:
    """Fills the port RunArtifacts; returns only content with the recorded SHA-256, so that a changed bucket proves no
    claim.
    """

    def __init__(self, artifacts: RunArtifacts, store: RunStore) -> None:
        self._artifacts = artifacts
        self._store = store

    async def get(self, run_id: str, path: str) -> bytes | None:
        content = await self._artifacts.get(run_id, path)
        if content is None:
            return None
        records = (entry.record() for entry in await self._store.entries(run_id) if path in entry.event)
        if not all(one.is_brought_by(content) for one in recorded_artifacts(records) if one.path == path):
            log.error("an artifact was replaced", extra={"run_id": run_id, "path": path})
            raise ArtifactReplaced(run_id, path)
        return content

    async def put(self, run_id: str, path: str, content: bytes) -> None:
        await self._artifacts.put(run_id, path, content)


@contextmanager
def _retryable() -> Iterator[None]:
    try:
        yield
    except Failure as error:
        raise TryAgain(f"the bucket {subjects.ARTIFACT_BUCKET}: {error}") from error


SHOWN_WITHIN_S = 2.0


async def show_halt(link: NatsLink, halt: Halt) -> None:
    """Raises TryAgain while the bus does not accept it."""
    try:
        await link.store(SUBJECT, halt.model_dump_json().encode(), {}, within_s=SHOWN_WITHIN_S)
    except (GiveUp, Misconfigured) as error:
        raise TryAgain(f"the stop cannot be shown on the bus: {error}") from error


async def shown_halt(link: NatsLink) -> Halt | None:
    """Raises TryAgain."""
    found = (await read_value(link, subjects.LEASE_BUCKET, subjects.HALT_KEY)).body
    try:
        return Halt.model_validate_json(found) if found else None
    except ValidationError:
        return None


class NatsClaimStore:
    """Fills the port ClaimStore."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def look(self, limit: str) -> tuple[Amounts, int]:
        found = await read_value(self._link, subjects.LEASE_BUCKET, _key_of(limit))
        try:
            return _AMOUNTS.validate_json(found.body or b"{}"), found.seq
        except ValidationError:  # an unreadable value claims nothing
            return {}, found.seq

    async def swap(self, limit: str, taken: Amounts, after: int) -> bool:
        body = _AMOUNTS.dump_json(dict(taken))
        return await replace_value(self._link, subjects.LEASE_BUCKET, _key_of(limit), body, after=after) is not None


_AMOUNTS = TypeAdapter(dict[str, float], config=ConfigDict(defer_build=True))


def _key_of(limit: str) -> str:
    return subjects.lease_key(subjects.LIMIT, hashlib.sha256(limit.encode()).hexdigest()[:16])
