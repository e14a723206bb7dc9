"""What was found wrong, as one text that repeats nothing of a value: places, and the words of the rules."""

import re
from collections.abc import Sequence

from pydantic import ValidationError

LONGEST_PLACE = 200
_TOO_FEW = re.compile(r"\w+ should have at least (\d+) items? after validation, not (\d+)")
_NO_OBJECT = re.compile(r"Input should be a valid dictionary( or (instance of \w+|object to extract fields from))?")


def flaws_of(error: ValidationError, *, whole: str = "body", most: int | None = 3) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)[:most]
    return "; ".join(f"{_place(flaw['loc']) or whole}: {rule_of(flaw['msg'])}" for flaw in found)


def rule_of(message: str) -> str:
    """The words of a rule: pydantic puts some of its own before those of ours, and names what only Python knows."""
    if few := _TOO_FEW.fullmatch(message):
        return f"needs at least {few[1]} item{'s' if few[1] != '1' else ''}, and has {few[2]}"
    return _NO_OBJECT.sub("must be an object, with `key: value`", message.removeprefix("Value error, "))


def listed(flaws: Sequence[str], *, most: int = 12) -> str:
    more = f"; and {len(flaws) - most} more" if len(flaws) > most else ""
    return "; ".join(flaws[:most]) + more


def _place(path: tuple[int | str, ...]) -> str:
    """Clipped, because a name that is not ours may be of any length."""
    return ".".join(map(str, path))[:LONGEST_PLACE]
