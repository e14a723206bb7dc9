"""What a server denied a login, and what of that it cannot do without. The client tells it in lower case."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from groundwork.nats.patterns import matches

_TEXT = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')


@dataclass(frozen=True, slots=True)
class Denial:
    """`deed` is what was tried: `publish` or `subscription`."""

    deed: str
    subject: str

    def __str__(self) -> str:
        return f'{self.deed} to "{self.subject}"'


@dataclass(frozen=True, slots=True)
class Needs:
    """Patterns of what a login has to be allowed, as a remedy names it."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    remedy: str

    def unmet(self, denials: Iterable[Denial]) -> str:
        missed = [denial for denial in denials if self._has(denial)]
        return f"NATS denies this login {', '.join(map(str, missed))}: {self.remedy}" if missed else ""

    def _has(self, denial: Denial) -> bool:
        patterns = self.publish if denial.deed == "publish" else self.subscribe
        return any(matches(pattern.lower(), denial.subject) for pattern in patterns)


def read_denial(text: str) -> Denial | None:
    """What an error of the client tells of; None for any other."""
    found = _TEXT.search(text)
    return Denial(found[1], found[2]) if found else None
