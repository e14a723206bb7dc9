"""Background turns after a wake, timer, cancel or restart. Errors are logged; a broken disk ends the process."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

from agent_service.errors import Damaged
from groundwork.service.errors import Broken, TryAgain

Given = TypeVarTuple("Given")

log = logging.getLogger(__name__)


class Background:
    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def start(self, work: Callable[[*Given], Awaitable[object]], *given: *Given) -> None:
        """Starts nothing in a process that ends: the work is resumed from the store."""
        name = getattr(work, "__qualname__", "work")
        logged = _logged(name, work, *given)
        try:
            self._group.create_task(logged, name=name)
        except RuntimeError:  # the group is closing
            logged.close()


async def _logged(name: str, work: Callable[[*Given], Awaitable[object]], *given: *Given) -> None:
    try:
        await work(*given)
    except TryAgain as error:
        log.warning("put off", extra={"work": name, "why": str(error)})
    except Damaged as error:
        log.info("left alone", extra={"work": name, "run_id": error.run_id})
    except Broken:
        raise
    except Exception:  # an error in background work must not end all other turns
        log.exception("failed", extra={"work": name})
