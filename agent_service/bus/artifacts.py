"""Artifacts in the object store bucket of the gateway: `artifacts/<name>` of a run is `<run_id>/<name>`."""

import mimetypes

from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, GiveUp, TryAgain
from schemas import subjects

FOLDER = "artifacts/"


class NatsArtifacts:
    """Fills the port KeptArtifacts."""

    def __init__(self, link: NatsLink) -> None:
        self._bucket = ArtifactBucket(link, subjects.ARTIFACT_BUCKET)

    async def get(self, run_id: str, path: str) -> bytes | None:
        """The content, or None. Raises TryAgain when the bus does not answer."""
        if not path.startswith(FOLDER):
            return None
        try:
            return await self._bucket.get(f"{run_id}/{path.removeprefix(FOLDER)}")
        except GiveUp:
            return None
        except Failure as error:
            raise TryAgain(str(error)) from error

    async def put(self, run_id: str, path: str, content: bytes) -> None:
        """As the port says."""
        content_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
        try:
            await self._bucket.put(f"{run_id}/{path.removeprefix(FOLDER)}", content, content_type)
        except Failure as error:
            raise TryAgain(str(error)) from error
