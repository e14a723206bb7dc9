"""Artifacts from the object store bucket that the gateway writes: `artifacts/<name>` of a run is `<run_id>/<name>`."""

from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, GiveUp, TryAgain
from schemas import subjects

FOLDER = "artifacts/"


class NatsArtifacts:
    """Fills the port Artifacts."""

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
