"""A service until it is told to stop. What ends it is said in its log, in one line."""

import logging
import os
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any, Protocol

import uvloop

from groundwork.service import beginning, json_log, process
from groundwork.service.config_file import LogSettings, secrets_in
from groundwork.service.exits import Exit, complaint_of
from groundwork.service.secret import equal_ones

log = logging.getLogger(__name__)


class Logged(Protocol):
    """Settings of a service."""

    @property
    def log(self) -> LogSettings: ...

    def secrets(self) -> Collection[str]: ...


def serve(
    file: Path | None, settings: Logged, work: Callable[[], Coroutine[Any, Any, None]], *, aside: Collection[str] = ()
) -> Exit:
    """`file`: of the settings. `aside`: fields of the log that are left out of text for people."""
    json_log.set_up(settings.log.level.upper(), settings.log.format, redact=settings.secrets, aside=aside)
    for told in equal_ones(secrets_in(file, os.environ)) if file else ():
        log.warning("%s: give each its own", told)
    beginning.collect_seldom()
    process.hide_memory()
    try:
        uvloop.run(work())
    except Exception as error:
        complaint = complaint_of(error)
        if complaint is None:
            log.critical("the service failed: this is a fault of its own", exc_info=error)
            return Exit.FAILED
        log.critical("%s", str(complaint))
        return complaint.exit_code
    return Exit.OK
