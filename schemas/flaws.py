"""What pydantic found wrong, as one text that repeats nothing of the value: its places and the words of the rules."""

from pydantic import ValidationError

LONGEST_PLACE = 200
"""Characters: whoever sends a value names its keys."""


def flaws_of(error: ValidationError, *, whole: str = "body", most: int | None = 3) -> str:
    """The first `most` flaws, each with its place; `whole` stands for the place of the value itself."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[:most]
    return "; ".join(f"{_place(flaw['loc']) or whole}: {flaw['msg']}" for flaw in found)


def _place(path: tuple[int | str, ...]) -> str:
    """Clipped, because a name that is not ours may be of any length."""
    return ".".join(map(str, path))[:LONGEST_PLACE]
