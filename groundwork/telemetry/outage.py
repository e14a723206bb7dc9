"""A receiver that takes nothing: told once when that begins and once when it is over, however many batches it costs."""

import logging
from collections.abc import Collection

log = logging.getLogger(__name__)


class Outage(logging.Handler):
    """Of the receiver of one `signal`; `address` is shown. The first thing that the SDK logs of a batch (`loggers`) is
    the reason."""

    def __init__(self, signal: str, address: str, loggers: Collection[str]) -> None:
        super().__init__(logging.WARNING)
        self._facts = {"signal": signal, "receiver": address}
        self._loggers = [logging.getLogger(name) for name in loggers]
        self._why = ""
        self._away = False
        for talkative in self._loggers:
            talkative.propagate = False
            talkative.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._why = self._why or record.getMessage()

    def note(self, *, taken: bool) -> None:
        if not taken and not self._away:
            log.warning("telemetry is not taken: runs go on without it", extra=self._facts | {"why": self._why})
        if taken and self._away:
            log.warning("telemetry is taken again", extra=self._facts)
        self._away, self._why = not taken, ""

    def over(self) -> None:
        for talkative in self._loggers:
            talkative.removeHandler(self)
