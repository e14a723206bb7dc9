"""The ports of calls. Every instant is UTC. Methods that may wait for disk or network may also raise TryAgain (nothing
is lost, the same again later), Broken or Misconfigured.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol

from ductile_gateway.calls.call import CallRequest, Intent, Receipt, ToolCall, ToolOutcome, Verdict
from schemas.status import Finding

StatusCheck = Callable[[], Sequence[Finding] | Awaitable[Sequence[Finding]]]
"""How a part of the gateway is."""


class Begin(Protocol):
    """The last word before a tool is started: its call is still wanted, still ours, and durably intended."""

    async def __call__(self, receipt: Receipt | None = None) -> None:
        """`receipt`: what the runner will need to find the call again, stored in the same write as the intent. What
        this raises, the runner raises, and starts nothing: also AlreadyStarted, where there is a receipt already."""


async def unrecorded(receipt: Receipt | None = None) -> None:
    """Lets everything begin and remembers nothing."""


class ToolRunner(Protocol):
    """Carries out calls. What it remembers of a call it keeps under the call's key until it is told to forget it."""

    @property
    def finds_anywhere(self) -> bool:
        """Whether a call that one gateway has started can be found by another, on another machine."""

    async def run(self, call: ToolCall, begin: Begin = unrecorded) -> Verdict:
        """Run the call, and `begin` right before. Raises AlreadyStarted for a key that was started and not forgotten,
        and what `begin` raises. Cancelling leaves what runs outside of this process running."""

    async def resume(self, call: ToolCall) -> Verdict:
        """The verdict on a call that may have been started before, waiting for it until its deadline if it still runs.
        NeverStarted only if it never will run from that start."""

    async def forget(self, key: str) -> None:
        """The verdict is recorded. A key that is not known is fine."""


class ArtifactStore(Protocol):
    async def put(self, run_id: str, name: str, content: bytes, content_type: str) -> None:
        """Stored on return. Raises NoRoom, and CannotKeep for a run id or name that the store does not take."""

    async def get(self, run_id: str, name: str) -> bytes | None:
        """The content, or None when there is none."""


class CannotKeep(Exception):
    """The store will never take an artifact of this run id and name."""


HasEnded = Callable[[str], Awaitable[bool | None]]
"""Whether the run of this id is known to have ended. None where no agent answers. Raises TryAgain while all is
stopped."""


class Ownership(Protocol):
    """Whose a call is."""

    async def held(self) -> None:
        """Raises TryAgain while the owner of the bus is unknown, and Misconfigured once it is another."""

    def note_delivery(self, key: str, delivered: int, at: datetime) -> None:
        """The request of call `key`, stored `at`, was delivered for the `delivered`-th time."""

    def doubt(self, asked: CallRequest) -> str:
        """Why the call may have been begun elsewhere, or in a time that was lost; empty where it cannot."""

    async def lost(self, intent: Intent, *, anywhere: bool) -> str:
        """Why the gateway that began the call is gone; empty where this one began it. Raises TryAgain while the other
        lives; and while it may be back, for a call that can not be gone on with `anywhere`."""


class ResultBus(Protocol):
    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        """Durably, under Msg-Id `key`; a duplicate is a success."""


class CallObserver(Protocol):
    """Hears what becomes of calls. Returns at once, raises nothing, and changes nothing."""

    def begun(self, asked: CallRequest) -> None: ...

    def put_off(self, asked: CallRequest) -> None: ...

    def answered(self, asked: CallRequest, outcome: ToolOutcome) -> None: ...

    def known(self, asked: CallRequest) -> None:
        """It came again, and had been answered before."""
