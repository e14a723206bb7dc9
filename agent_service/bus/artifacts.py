"""Artifacts in the object store bucket of the gateway: `artifacts/<name>` of a run is `<run_id>/<name>`."""

import mimetypes
from collections.abc import Mapping

from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.errors import Refused
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, GiveUp, TryAgain
from schemas import subjects

FOLDER = "artifacts/"


def key_of(run_id: str, path: str) -> str:
    return f"{run_id}/{path.removeprefix(FOLDER)}"


class NatsArtifacts:
    def __init__(self, link: NatsLink) -> None:
        self._bucket = ArtifactBucket(link, subjects.ARTIFACT_BUCKET)

    async def get(self, run_id: str, path: str) -> bytes | None:
        """The content, or None. Raises TryAgain when the bus does not answer."""
        if not path.startswith(FOLDER):
            return None
        try:
            return await self._bucket.get(key_of(run_id, path))
        except GiveUp:
            return None
        except Failure as error:
            raise TryAgain(str(error)) from error

    async def put(self, run_id: str, path: str, content: bytes) -> None:
        try:
            await self._bucket.put(key_of(run_id, path), content, content_type_of(path))
        except Failure as error:
            raise TryAgain(str(error)) from error

    async def remove(self, run_id: str, path: str) -> None:
        """Forget the content. Raises TryAgain."""
        try:
            await self._bucket.remove(key_of(run_id, path))
        except Refused:  # under such a name nothing is ever stored
            return
        except Failure as error:
            raise TryAgain(str(error)) from error

    async def sizes(self) -> Mapping[str, int]:
        """Bytes of each run that has any. Raises TryAgain."""
        sizes: dict[str, int] = {}
        try:
            for stored in await self._bucket.list():
                run_id = stored.key.partition("/")[0]
                sizes[run_id] = sizes.get(run_id, 0) + stored.size
        except Failure as error:
            raise TryAgain(str(error)) from error
        return sizes


def content_type_of(path: str) -> str:
    return mimetypes.guess_type(path)[0] or "application/octet-stream"
