"""Texts of others on their way into an event: what can be stored of them, and their beginning or end. Pure."""

from collections.abc import Iterable

from schemas.clipping import marked

SHORTEST_SECRET = 6
STDERR_BYTES = 2 * 1024


def storable(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def printable(text: object, limit: int = 500) -> str:
    return "".join(character if character.isprintable() else " " for character in str(text)[:limit])


def masked(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted((secret for secret in secrets if len(secret) >= SHORTEST_SECRET), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def end_of(text: str, limit: int) -> str:
    """The last `limit` bytes of UTF-8, from the beginning of a line where there is one among them."""
    encoded = storable(text).strip().encode()
    if len(encoded) <= limit:
        return encoded.decode()
    end = encoded[-limit:].decode(errors="ignore")
    return end.partition("\n")[2] or end


def cut(text: str, limit: int, *, where: str = "") -> str:
    """At most `limit` bytes of UTF-8, and a marker that names the artifact `where` to read on, and the place in it."""
    text = storable(text)
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    head = encoded[:limit].decode(errors="ignore")
    rest = f"; the whole is the artifact {where}, which goes on at {_end_of(head)}" if where else ""
    return marked(head, len(text), rest)


def _end_of(head: str) -> str:
    lines = head.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"line {len(lines)}, character {len(lines[-1]) + 1}"
