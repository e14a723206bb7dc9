"""Artifacts in the bucket of the NATS object store, under `<run_id>/<name>`."""

from ductile_gateway.ports import CannotKeep
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.errors import Refused
from groundwork.service.errors import GiveUp


class NatsArtifacts:
    """Fills the port Artifacts."""

    def __init__(self, bucket: ArtifactBucket) -> None:
        self._bucket = bucket

    async def put(self, run_id: str, name: str, content: bytes, content_type: str) -> None:
        try:
            await self._bucket.put(f"{run_id}/{name}", content, content_type)
        except Refused as error:
            raise CannotKeep(str(error)) from error

    async def get(self, run_id: str, name: str) -> bytes | None:
        try:
            return await self._bucket.get(f"{run_id}/{name}")
        except GiveUp:
            return None
