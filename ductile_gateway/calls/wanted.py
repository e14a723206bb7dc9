"""Whether a call is wanted yet, right before it is begun: nothing is begun for a run that has ended.

A write is asked about every time, as late as can be; where nobody answers it waits for its agent (one that names
executors), up to its deadline, unless that was there a moment ago. A read is asked about when it has waited for long,
and not held up.
"""

from datetime import timedelta

from ductile_gateway.calls.call import Intent, Unwanted
from ductile_gateway.ports import Clock, Runs
from groundwork.service.errors import TryAgain

A_MOMENT = timedelta(seconds=2)
"""Who asked for a call so short a time ago lived then, and its run with it."""
WAITED_FOR_LONG = timedelta(seconds=30)
ASK_AGAIN_S = 0.5


class Wanted:
    def __init__(self, runs: Runs, clock: Clock) -> None:
        self._runs = runs
        self._clock = clock

    async def check_early(self, intent: Intent) -> None:
        """Of a call that has waited: whoever waits for a Ductile that is away is not to do so for nobody. Raises
        Unwanted or TryAgain."""
        if self._waited(intent) > A_MOMENT:
            await self.check(intent)

    async def check(self, intent: Intent) -> None:
        """Raises Unwanted or TryAgain."""
        request, waited = intent.asked.request, self._waited(intent)
        if intent.may_repeat and waited <= WAITED_FOR_LONG:
            return
        has_ended = await self._runs.has_ended(request.run_id)
        if has_ended:
            raise Unwanted
        if has_ended is None and not intent.may_repeat and request.executor and waited > A_MOMENT:
            raise TryAgain("no agent says whether the run of this write goes on", ASK_AGAIN_S)

    def _waited(self, intent: Intent) -> timedelta:
        return self._clock.now() - intent.asked.request.requested_at
