"""What both ways to an agent do: HTTP, and the bus. JSON in, JSON out; what goes wrong is an AgenticError."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

Json = dict[str, Any]
Filters = Mapping[str, str | int | tuple[str, ...]]
SILENT_AT_MOST_S = 20.0


class Transport(Protocol):
    async def wake(self, body: Json) -> Json: ...

    async def run(self, run_id: str, wait_s: float) -> Json:
        """Where the run stands; where the agent can, after up to `wait_s` until it rests."""

    async def runs(self, filters: Filters) -> Json: ...

    async def say(self, run_id: str, what: str, body: Json) -> Json:
        """`what` is `cancel`, `approve`, `answer` or `signal`."""

    def entries(self, run_id: str, after: int) -> AsyncGenerator[Json, None]:
        """Those after entry `after` as they come, until the run has ended. Raises Unreachable when it breaks off."""

    async def tools(self) -> Json: ...

    async def files(self, run_id: str) -> Json: ...

    async def read(self, run_id: str, path: str) -> bytes: ...

    async def close(self) -> None: ...
