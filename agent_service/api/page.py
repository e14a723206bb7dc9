"""The page at `/`: static files of the package, open to everybody because they hold no data.

The Content-Security-Policy lets them run scripts and styles of this origin only; no string becomes script or markup.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from fastapi import Request
from fastapi.responses import Response

from agent_service.api.refusals import Refusal

FOLDER = Path(__file__).resolve().parents[1] / "page"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

INDEX = "index.html"
ROOT = "/page/"

HEADERS = {
    "cache-control": "no-cache",  # kept by browsers, and asked about before each use: a newer agent is seen at once
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    content: bytes
    media_type: str
    etag: str


class Page:
    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    async def index(self, request: Request) -> Response:
        return self._answer(request, INDEX)

    async def file(self, request: Request, path: str) -> Response:
        return self._answer(request, path)

    def _answer(self, request: Request, path: str) -> Response:
        found = self._files.get(path)
        if found is None:
            raise Refusal(404, "not_found", "the page has no such file")
        headers = {"etag": found.etag}
        if found.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers=headers, media_type=found.media_type)

    @cached_property
    def _files(self) -> Mapping[str, _File]:
        paths = (path for path in self._folder.rglob("*") if path.suffix in TYPES)
        return {path.relative_to(self._folder).as_posix(): _file(path) for path in paths}


def is_of_the_page(path: str) -> bool:
    return path == "/" or path.startswith(ROOT)


def _file(path: Path) -> _File:
    content = path.read_bytes()
    return _File(content=content, media_type=TYPES[path.suffix], etag=f'"{sha256(content).hexdigest()[:32]}"')
