"""The ended runs whose pages stay in their folders: those written last."""

import logging
from collections.abc import Iterable

from agent_service.telling.folder.workspace import Workspace

AT_ONCE = 500
"""Pages put away per batch, where many lie there from before."""

log = logging.getLogger(__name__)


class Shelf:
    """`keep`: at least one. `lying`: ended runs that may have pages, the longest written first."""

    def __init__(self, workspace: Workspace, keep: int, lying: Iterable[str] = ()) -> None:
        self._workspace = workspace
        self._keep = keep
        self._lying = dict.fromkeys(lying)

    def written(self, run_id: str, *, ended: bool) -> None:
        self._lying.pop(run_id, None)
        if ended:
            self._lying[run_id] = None

    def clear(self) -> None:
        surplus = list(self._lying)[: min(max(0, len(self._lying) - self._keep), AT_ONCE)]
        for run_id in surplus:
            del self._lying[run_id]
        try:
            self._workspace.put_away(surplus)
        except OSError as error:
            log.warning("pages of ended runs are not put away", extra={"runs": len(surplus), "why": repr(error)})
