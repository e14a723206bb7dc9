"""`ductile-gateway serve`: the gateway until it is told to stop."""

import logging
from pathlib import Path

from ductile_gateway import app
from ductile_gateway.settings import GatewaySettings, load, settings_file
from groundwork.service import serving
from groundwork.service.errors import Exit
from groundwork.service.serving import OF_A_SERVICE, cancelled_by_signals

log = logging.getLogger(__name__)


def serve(config: Path | None, *, take_over: bool = False) -> Exit:
    """Raises Misconfigured for settings that cannot be used: until they are read there is no log to say it in."""
    file = settings_file(config)
    settings = load(file)
    return serving.serve(file, settings, lambda: _until_told(settings, take_over=take_over))


async def _until_told(settings: GatewaySettings, *, take_over: bool) -> None:
    with cancelled_by_signals(lambda: None, OF_A_SERVICE):
        await app.serve(settings, take_over=take_over)
    log.info("stopped")
