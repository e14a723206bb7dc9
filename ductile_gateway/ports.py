"""The ports of calls. Times are UTC. Methods that wait for disk or network may also raise TryAgain (nothing is lost,
and the same may work later), Broken or Misconfigured.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from ductile_gateway.calls.call import CallRequest, Receipt, ToolCall, ToolOutcome, Verdict


class Begin(Protocol):
    """Called right before a tool starts: checks that the call is still wanted and ours, and stores the call."""

    async def __call__(self, receipt: Receipt | None = None) -> None:
        """`receipt`: the runner finds the call again by it; stored in the same write as the call. The runner raises
        what this raises, and starts nothing: also AlreadyStarted if there is a receipt."""


class ToolRunner(Protocol):
    """Carries out calls, and keeps a record of each under its key until `forget`."""

    @property
    def finds_anywhere(self) -> bool:
        """True if a gateway on another machine can resume a call."""

    async def run(self, call: ToolCall, begin: Begin) -> Verdict:
        """Raises AlreadyStarted for a key that was started and not forgotten, and what `begin` raises. Cancelling does
        not end processes."""

    async def resume(self, call: ToolCall) -> Verdict:
        """The verdict on a call that may have been started before; waits for one that still runs until its deadline.
        NeverStarted means that it never will run from that start."""

    async def forget(self, key: str) -> None:
        """Unknown keys are ignored."""


class ToolArtifactStore(Protocol):
    """Keys are `run_id/name`."""

    async def put(self, key: str, data: bytes, content_type: str, *, over: bool = True) -> None:
        """Durable on return. `over`: replaces other content. Raises NoRoom, NameTaken, and GiveUp for a key that it
        will never take."""

    async def get(self, key: str) -> bytes | None: ...


HasEnded = Callable[[str], Awaitable[bool | None]]
"""True if the run of this id has ended, None if no agent answers. Raises TryAgain while everything is stopped."""


class ResultBus(Protocol):
    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        """Durable on return, under Msg-Id `key`; a duplicate is a success."""


class CallObserver(Protocol):
    """Told of the states of calls. Methods return at once and raise nothing."""

    def begun(self, asked: CallRequest) -> None: ...

    def put_off(self, asked: CallRequest) -> None: ...

    def answered(self, asked: CallRequest, outcome: ToolOutcome) -> None: ...

    def known(self, asked: CallRequest) -> None:
        """The request came again after its answer."""
