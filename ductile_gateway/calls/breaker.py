"""A circuit breaker for each plugin: who has failed several times in a row is left alone for a while. Pure.

Failures are those of the way to the plugin (no connection, no answer, 5xx), never a tool's own error. After the while
calls pass again; the first that fails opens the circuit anew.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(slots=True)
class _Circuit:
    failures: int = 0
    open_until: datetime | None = None


@dataclass(slots=True)
class Breaker:
    """Counts by name. `after` failures in a row open a circuit for `open_for`."""

    after: int
    open_for: timedelta
    _circuits: dict[str, _Circuit] = field(default_factory=dict)

    def wait_s(self, name: str, now: datetime) -> float:
        """How long to leave it alone, in seconds; 0 when it may be called."""
        circuit = self._circuits.get(name)
        until = circuit.open_until if circuit else None
        return max(0.0, (until - now).total_seconds()) if until else 0.0

    def left_alone(self, now: datetime) -> dict[str, float]:
        """Who may not be called, and for how many seconds yet."""
        return {name: wait_s for name in self._circuits if (wait_s := self.wait_s(name, now))}

    def failed(self, name: str, now: datetime) -> bool:
        """One more failure. True when it opens the circuit."""
        circuit = self._circuits.setdefault(name, _Circuit())
        circuit.failures += 1
        if circuit.failures < self.after:
            return False
        circuit.open_until = now + self.open_for
        return True

    def succeeded(self, name: str) -> None:
        """It answered: all is forgotten."""
        self._circuits.pop(name, None)
