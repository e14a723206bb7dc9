"""`ductile-gateway serve`: the gateway until it is told to stop. Whatever ends it is said in its log, in one line."""

import logging
import os
import sys
from pathlib import Path

import uvloop

from ductile_gateway.cli.exits import MISCONFIGURED, NAME, logged, settings_file
from ductile_gateway.settings import GatewaySettings, load
from groundwork.service import beginning, json_log, process
from groundwork.service.config_file import secrets_in
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import equal_ones
from groundwork.service.signals import ended_by_signals

log = logging.getLogger(__name__)


def serve(config: Path | None, *, take_over: bool = False) -> int:
    file = settings_file(config)
    try:
        settings = load(file)
    except Misconfigured as error:  # until they are read there is no log to say it in
        sys.stderr.write(f"{NAME}: {error}\n")
        return MISCONFIGURED
    json_log.set_up(settings.log.level.upper(), settings.log.format, redact=settings.secrets)
    for told in equal_ones(secrets_in(file, os.environ)) if file else ():
        log.warning("%s: give each its own", told)
    return run(settings, take_over=take_over)


def run(settings: GatewaySettings, *, take_over: bool = False) -> int:
    process.hide_memory()
    try:
        uvloop.run(_until_told(settings, take_over=take_over))
    except KeyboardInterrupt:  # while its modules were loaded
        pass
    except Exception as error:  # noqa: BLE001 - the last stop: what is told here is all that is told
        return logged(error)
    log.info("stopped")
    return 0


async def _until_told(settings: GatewaySettings, *, take_over: bool) -> None:
    with beginning.uncollected():
        from ductile_gateway.app import serve  # the other commands need none of it
    beginning.collect_seldom()
    with ended_by_signals(lambda: None):
        await serve(settings, take_over=take_over)
