"""Starting a call through the API of a Ductile, and finding the job of a start that was not answered.

Rules: a call is sent at most once, unless it is sure that Ductile has made no job of it. Ductile has no idempotency of
its own, so the call id travels in the payload, by which its job is found. What cannot be found out is Unknown.
"""

from typing import Protocol

from pydantic import JsonValue

from ductile_gateway.calls.call import ToolCall, Unknown
from ductile_gateway.ductile.api import DuctileApi
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.search import Found, JobSearch
from ductile_gateway.store.receipts import Receipt

CALL_ID = "agentic_call_id"


class Starts(Protocol):
    """A way of handing calls to a Ductile."""

    async def start(self, call: ToolCall) -> str:
        """The id of the job that was made of the call. Raises NotSent, Refused or Lost, of which only the last leaves
        open whether one was."""

    async def find(self, call: ToolCall, receipt: Receipt, /) -> Found:
        """What became of a call whose start was not answered."""


def payload_of(call: ToolCall, *, with_id: bool) -> dict[str, JsonValue]:
    """Whatever the model gave as a call id, ours is the one that is sent."""
    payload = {name: value for name, value in call.payload.items() if name != CALL_ID}
    return payload | {CALL_ID: call.key} if with_id else payload


class ApiStarts:
    """Fills Starts, by POST to a command or a pipeline."""

    def __init__(self, api: DuctileApi, search: JobSearch, *, tools: DuctileTools, send_call_id: bool) -> None:
        self._api = api
        self._search = search
        self._tools = tools
        self._send_call_id = send_call_id

    def now_has(self, tools: DuctileTools) -> None:
        """What Ductile has, from now on."""
        self._tools = tools

    def know(self, job_id: str) -> None:
        """A job that is none of another call's."""
        self._search.know(job_id)

    async def before(self, call: ToolCall) -> str | None:
        """The mark that `find` needs to know of the time before a start, None where there is none. Raises Away unless
        a Ductile is there."""
        await self._api.health()
        return None if self._is_pipeline(call) else await self._search.newest(call)

    async def start(self, call: ToolCall) -> str:
        payload = payload_of(call, with_id=self._names_itself(call))
        if self._is_pipeline(call):
            return await self._api.start_pipeline(call.plugin, payload)
        return await self._api.start(call.plugin, call.command, payload)

    async def find(self, call: ToolCall, receipt: Receipt) -> Found:
        if self._is_pipeline(call):  # its first job is of a plugin that is not told
            return Unknown("its start in Ductile was not answered, and a pipeline's jobs do not show whose they are")
        return await self._search.find(call, receipt, names_itself=self._names_itself(call))

    def _is_pipeline(self, call: ToolCall) -> bool:
        return call.plugin in self._tools.pipelines

    def _names_itself(self, call: ToolCall) -> bool:
        return self._send_call_id and (call.plugin, call.command) not in self._tools.closed
