"""Runs that are left alone, while the others go on."""

import logging
from collections.abc import Iterable

from agent_service.errors import Damaged

log = logging.getLogger(__name__)


class Quarantine:
    """Runs whose stored rows cannot be read or were changed, as those who read them found.

    In memory only: after a repair and a restart all is tried.
    """

    def __init__(self) -> None:
        self._why: dict[str, Damaged] = {}

    def __len__(self) -> int:
        return len(self._why)

    def add(self, found: Damaged) -> None:
        if found.run_id not in self._why:
            self._why[found.run_id] = found
            log.error("run left alone", extra={"run_id": found.run_id, "why": str(found)})

    def check(self, run_id: str) -> None:
        if found := self._why.get(run_id):
            raise type(found)(found.run_id, found.what)

    def why(self, run_id: str) -> str:
        found = self._why.get(run_id)
        return found.what if found else ""

    def without(self, run_ids: Iterable[str]) -> list[str]:
        return [run_id for run_id in run_ids if run_id not in self._why]
