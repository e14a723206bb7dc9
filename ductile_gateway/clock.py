"""The clock of the machine. Fills the port Clock."""

from datetime import datetime

from groundwork.service.machine import utc_now


class SystemClock:
    def now(self) -> datetime:
        return utc_now()
