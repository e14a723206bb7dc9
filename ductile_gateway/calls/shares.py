"""The places of a tool over several gateways: who has how many, and who is given the next. Pure.

    free places ─▶ one by one to who needs more than it has: the fewest first, then who has waited longest

A gateway keeps the places that it has until another needs one: so a tool that is not fought over costs no message, and
one that is gives the same to each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Share:
    """Of one gateway. `needs`: how many it would fill now, with those that it `has`. `turn`: when it was last given
    one, counted in places given."""

    has: int = 0
    needs: int = 0
    turn: int = 0

    @property
    def lacks(self) -> bool:
        return self.has < self.needs

    @property
    def rank(self) -> tuple[int, int]:
        return self.has, self.turn


Shares = Mapping[str, Share]
"""By gateway."""


def dealt(shares: Shares, width: int) -> dict[str, Share]:
    """The shares after what is free of `width` places was given to who needs it; who neither has nor needs any is left
    out."""
    given = dict(shares)
    turn = max((share.turn for share in given.values()), default=0)
    free = width - sum(share.has for share in given.values())
    while free > 0 and (name := _next(given)) is not None:
        turn, free = turn + 1, free - 1
        given[name] = replace(given[name], has=given[name].has + 1, turn=turn)
    return {name: share for name, share in given.items() if share.has or share.needs}


def _next(shares: Shares) -> str | None:
    lacking = (name for name, share in shares.items() if share.lacks)
    return min(lacking, key=lambda name: (shares[name].rank, name), default=None)


def deserved(others: Shares, mine: Share) -> bool:
    after = replace(mine, has=mine.has - 1)
    return any(share.lacks and share.rank < after.rank for share in others.values())
