"""Names and texts of artifacts, which a run knows as `artifacts/<name>` in one flat folder. Pure.

A tool's own name is kept (`critique.md`), unless it is generic: then tool and step make the name (RFC-103:
`artifacts/fetch-01.html`). An argument whose schema says `"format": "artifact"` holds such a path; the tool gets the
content in its place.
"""

import hashlib
import re
from pathlib import PurePosixPath

from pydantic import JsonValue

from ductile_gateway.calls.call import CallRequest, ProducedArtifact
from schemas.bounded import storable, with_cut_marker

STDERR_BYTES = 2 * 1024


def printable(text: object, limit: int = 500) -> str:
    return "".join(character if character.isprintable() else " " for character in str(text)[:limit])


def tail(text: str, limit: int) -> str:
    """The last `limit` bytes of UTF-8, from the start of a line if one starts there."""
    encoded = storable(text).strip().encode()
    if len(encoded) <= limit:
        return encoded.decode()
    end = encoded[-limit:].decode(errors="ignore")
    return end.partition("\n")[2] or end


def clipped(text: str, limit: int, *, where: str = "") -> str:
    """At most `limit` bytes of UTF-8, and a marker that says where to read on in the artifact `where`."""
    text = storable(text)
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    head = encoded[:limit].decode(errors="ignore")
    lines = head.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    place = f"line {len(lines)}, character {len(lines[-1]) + 1}"
    return with_cut_marker(
        head, len(text), f"; the whole is the artifact {where}, which goes on at {place}" if where else ""
    )


FOLDER = "artifacts"
LONGEST_STEM = 48
LONGEST_TASK = 16
LONGEST_ASKER = 27
LONGEST_SUFFIX = 10
GENERIC = frozenset({"artifact", "content", "file", "output", "page", "response", "result"})

SUFFIXES = {
    "application/json": ".json",
    "application/pdf": ".pdf",
    "application/xml": ".xml",
    "application/yaml": ".yaml",
    "image/jpeg": ".jpeg",
    "image/png": ".png",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/plain": ".txt",
}
_TYPES = {suffix: content_type for content_type, suffix in SUFFIXES.items()} | {
    ".htm": "text/html",
    ".jpg": "image/jpeg",
    ".yml": "application/yaml",
}
_TEXT = re.compile(r"text/.*|application/(json|xml|yaml|javascript|.*\+json|.*\+xml)")
_CHARSET = re.compile(
    r"utf-?8|utf-?(16|32)(le|be)?|(us-)?ascii|(iso-?8859|windows|cp|ibm)-?[0-9]{1,4}|latin-?1|koi8-[ru]|macintosh|"
    r"shift-jis|euc-(jp|kr)|iso-2022-jp|big5|gbk|gb2312|gb18030|tis-620"
)
"""Python knows more charsets, such as `punycode`, which takes half a minute for 0.8 MB."""
_WITH_DIGEST = re.compile(r".*-relayed-([0-9a-f]{16})(?:\..*)?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def artifact_path(name: str) -> str:
    return f"{FOLDER}/{name}"


def artifact_name(path: JsonValue) -> str | None:
    folder, _, name = path.partition("/") if isinstance(path, str) else ("", "", "")
    return name if folder == FOLDER and _NAME.fullmatch(name) else None


def name_candidates(artifact: ProducedArtifact, asked: CallRequest, *, place: int) -> tuple[str, ...]:
    """Candidates for the name of the artifact at this place of the call, the best first; the last one is unique."""
    request, given = asked.request, PurePosixPath(artifact.name.lstrip("._-"))
    suffix = given.suffix if 1 < len(given.suffix) <= LONGEST_SUFFIX else SUFFIXES.get(media_type(artifact), "")
    stem = (given.stem if given.suffix == suffix else given.name)[:LONGEST_STEM]
    unique = hashlib.sha256(f"{asked.key}/{place}".encode()).hexdigest()[:12]
    if not stem or stem.lower() in GENERIC | {request.tool, asked.route}:
        stem, other = f"{request.tool[:LONGEST_STEM]}-{_asker(asked)}", f"{request.attempt}"
    else:
        other = _asker(asked)
    return f"{stem}{suffix}", f"{stem}-{other}{suffix}", f"{stem}-{unique}{suffix}"


def _asker(asked: CallRequest) -> str:
    request = asked.request
    task = (request.task or "").replace(".", "-")[-LONGEST_TASK:].strip("-")
    asker = f"{request.step:02d}-{task}-{request.round}" if task else f"{request.step:02d}"
    return asker[:LONGEST_ASKER]


def digest_in_name(name: str) -> str:
    """The start of the digest in the name of an artifact of a relayed result; empty for others."""
    found = _WITH_DIGEST.fullmatch(name)
    return found[1] if found else ""


def media_type(artifact: ProducedArtifact) -> str:
    return artifact.content_type.partition(";")[0].strip().lower()


def artifact_text(artifact: ProducedArtifact) -> str | None:
    if not _TEXT.fullmatch(media_type(artifact)):
        return None
    found = re.search(r"charset=([A-Za-z0-9-]+)", artifact.content_type)
    charset = found[1] if found and _CHARSET.fullmatch(found[1].lower()) else "utf-8"
    try:
        text = artifact.content.decode(charset, "replace")
    except LookupError:
        text = artifact.content.decode("utf-8", "replace")
    return text.replace("\0", "\ufffd")


def artifact_argument(name: str, content: bytes) -> dict[str, JsonValue] | None:
    """The artifact as a tool gets it; None if it is no text. UTF-8 whatever the name is; else, if the name is of a
    text, with replacement characters."""
    content_type = _TYPES.get(PurePosixPath(name).suffix.lower(), "application/octet-stream")
    try:
        text: str | None = content.decode()
    except UnicodeDecodeError:
        text = artifact_text(ProducedArtifact(name, content_type, content))
    return None if text is None else {"path": artifact_path(name), "content_type": content_type, "text": text}
