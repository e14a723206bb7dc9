"""Something outside that is away for a while: told once when that begins, with the reason, and once when it is over."""

import logging
import time


class Outage:
    """Of one thing, by its name for people, such as `NATS`. `why` is empty while it is there."""

    def __init__(self, what: str, log: logging.Logger) -> None:
        self._what = what
        self._log = log
        self._since = 0.0
        self.why = ""

    def goes_on(self, why: str) -> None:
        """It was met, perhaps for the first time. `why` is no empty text."""
        if not self.why:
            self._since = time.monotonic()
            self._log.warning("%s is away", self._what, extra={"event": "outage_began", "why": why})
        self.why = why

    def over(self) -> None:
        if self.why:
            facts = {"event": "outage_over", "away_s": round(time.monotonic() - self._since, 1), "why": self.why}
            self._log.warning("%s is back", self._what, extra=facts)
        self.why = ""
