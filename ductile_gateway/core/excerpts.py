"""Texts of others on their way into an event: what can be stored of them, and their beginning. Pure."""


def storable(text: str) -> str:
    """The text without NUL and halves of surrogate pairs, which events do not take."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def printable(text: object, limit: int = 500) -> str:
    """What somebody else has said, fit for a line of ours."""
    return "".join(character if character.isprintable() else " " for character in str(text)[:limit])


def cut(text: str, limit: int, *, where: str = "") -> str:
    """At most `limit` bytes of UTF-8, cut between two characters, and what was left out."""
    text = storable(text)
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    head = encoded[:limit].decode(errors="ignore")
    left = len(encoded) - len(head.encode())
    return f"{head}\n[… {left} more bytes{f' in {where}' if where else ''}]"
