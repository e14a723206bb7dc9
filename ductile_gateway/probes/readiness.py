"""Whether calls can be carried out now, by what that takes. Whatever is asked answers from memory."""

from collections.abc import Callable

from ductile_gateway.calls.excerpts import printable

Check = Callable[[], str]
"""What is wrong now, in words for a person; empty where nothing is."""


class Readiness:
    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def needs(self, name: str, check: Check) -> None:
        """One thing more that has to be there; or another check in place of that name's."""
        self._checks[name] = check

    def wrong(self) -> dict[str, str]:
        return {name: printable(check()) for name, check in self._checks.items()}
