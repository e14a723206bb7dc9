"""Serves the probes: their socket at once, answers once the calls go on that a crash interrupted. All from memory."""

import logging
from collections.abc import Awaitable, Callable

from ductile_gateway.calls.excerpts import printable
from ductile_gateway.settings import HttpSettings
from groundwork.http.listener import listening
from groundwork.service.beginning import loaded
from groundwork.service.errors import Misconfigured
from groundwork.service.serving import head_start

Check = Callable[[], str]
"""What is wrong now, in words for a person; empty where nothing is."""


class Readiness(dict[str, Check]):
    """What has to be there, by name."""

    def wrong(self) -> dict[str, str]:
        return {name: printable(check()) for name, check in self.items()}


log = logging.getLogger(__name__)


async def serve_probes(
    settings: HttpSettings,
    readiness: Readiness,
    *,
    metrics: Callable[[], Awaitable[bytes]],
    within_s: float = 0.0,
) -> None:
    """Until cancelled; returns where the default address is taken. `within_s`: wait for another gateway to leave it.
    Raises Misconfigured."""
    try:
        async with listening(settings.host, settings.port, who="gateway", within_s=within_s) as listener:
            await head_start()
            answer_probes = loaded("ductile_gateway.probes.http:answer_probes")  # takes a tenth of a second
            await answer_probes(listener, readiness, metrics, allowed_hosts=settings.allowed_hosts)
    except Misconfigured as error:
        if settings.is_chosen():
            raise
        log.warning("no probes are answered: %s Set `gateway.http.port` where there are to be two", error)
