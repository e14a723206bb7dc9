"""`agentic serve`: the agent until it is told to stop. Whatever ends it is said in its log, in one line."""

import logging
import os
from pathlib import Path

import uvloop

from agent_service import app, settings
from agent_service.cli import whereabouts
from agent_service.cli.errors import Exit, complaint_of
from agent_service.history.log_line import FOR_MACHINES
from groundwork.service import beginning, json_log, process
from groundwork.service.config_file import secrets_in
from groundwork.service.secret import equal_ones

log = logging.getLogger(__name__)


def serve(config: Path | None, *, take_over: bool) -> Exit:
    """Raises Misconfigured for settings that cannot be used: until they are read there is no log to say it in."""
    file = whereabouts.own(config)
    loaded = settings.load(file)
    json_log.set_up(loaded.log.level.upper(), loaded.log.format, redact=loaded.secrets, aside=FOR_MACHINES)
    for told in equal_ones(secrets_in(file, os.environ)) if file else ():
        log.warning("%s: give each its own", told)
    beginning.collect_seldom()
    process.hide_memory()
    try:
        uvloop.run(app.serve(loaded, take_over=take_over))
    except Exception as error:
        complaint = complaint_of(error)
        if complaint is None:
            log.critical("the agent failed: this is a fault of its own", exc_info=error)
            return Exit.FAILED
        log.critical("%s", str(complaint))
        return complaint.exit_code
    return Exit.OK
