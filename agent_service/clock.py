"""The computer's clock, and new identities."""

from datetime import UTC, datetime

from ulid import ULID


class SystemClock:
    """Fills the port Clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def new_run_id(self) -> str:
        return f"run_{ULID()}"
