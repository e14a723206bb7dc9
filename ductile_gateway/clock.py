"""The computer's clock."""

from datetime import UTC, datetime


class SystemClock:
    """Fills the port Clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)
