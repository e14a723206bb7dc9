"""What a store answers that one process has for itself: every run is its own, and nobody else commits."""

from collections.abc import Sequence


class Alone:
    async def caught_up(self) -> None:
        return

    async def ours(self, run_ids: Sequence[str]) -> Sequence[str]:
        return run_ids

    async def sees_to(self, run_id: str, seq: int) -> bool:
        del run_id, seq
        return True

    async def is_current(self, run_id: str, version: int) -> bool:
        del run_id, version
        return True

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        del run_id, call, since
        return False
