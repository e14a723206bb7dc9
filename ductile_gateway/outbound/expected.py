"""Whether anything would ever be sent to a callback, told while there is still somebody to tell: at the wake.

By whether there is a secret to sign with, by the URL, and by the addresses that its host has now. It is asked again
when something is sent, of the addresses of then: a name may have others by that time. What cannot be looked up soon is
not refused for that.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ductile_gateway.outbound.destinations import Forbidden, check_address, flaw_of, read_destination
from ductile_gateway.outbound.senders import UNSIGNED, Resolve, resolve_name
from ductile_gateway.outbound.settings import CallbackSettings

LOOK_UP_WITHIN_S = 1.0
RESOLVERS = 4
"""Names looked up at the same time, apart from those of what is sent: who asks for runs chooses these names."""


class Callbacks:
    def __init__(
        self, settings: CallbackSettings, resolve: Resolve = resolve_name, *, within_s: float = LOOK_UP_WITHIN_S
    ) -> None:
        self._is_signed = settings.secret is not None
        self._rules = settings.network
        self._resolve = resolve
        self._within_s = within_s
        self._resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="callback-resolver")

    async def flaw(self, url: str) -> str:
        if not self._is_signed:
            return UNSIGNED
        return flaw_of(url, self._rules) or await self._flaw_of_addresses(url)

    async def _flaw_of_addresses(self, url: str) -> str:
        destination = read_destination(url, self._rules)
        looking = asyncio.get_running_loop().run_in_executor(
            self._resolvers, self._resolve, destination.host, destination.port
        )
        try:
            for address in await asyncio.wait_for(looking, self._within_s):
                check_address(address, self._rules)
        except Forbidden as error:
            return f"{destination.host} has a forbidden address: {error}"
        except OSError:  # nobody knows the name now, or not soon: a TimeoutError is one, too
            return ""
        return ""
