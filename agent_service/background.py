"""Background turns after a wake, timer, cancel or restart. Errors are logged; a broken disk ends the process."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from agent_service.errors import Damaged
from groundwork.service.errors import Broken, TryAgain

log = logging.getLogger(__name__)


class Background:
    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Starts nothing in a process that ends: the work is resumed from the store."""
        name = getattr(work, "__qualname__", "work")
        ending = run_logged(work, name)
        try:
            task = self._group.create_task(ending, name=name)
        except RuntimeError:  # the group is closing
            ending.close()
            work.close()
        else:
            task.add_done_callback(lambda _: work.close())  # in case it was cancelled before it began


async def run_logged(work: Coroutine[Any, Any, Any], name: str) -> None:
    try:
        await work
    except TryAgain as error:
        log.warning("put off", extra={"work": name, "why": str(error)})
    except Damaged as error:
        log.info("left alone", extra={"work": name, "run_id": error.run_id})
    except Broken:
        raise
    except Exception:  # an error in background work must not end all other turns
        log.exception("failed", extra={"work": name})
