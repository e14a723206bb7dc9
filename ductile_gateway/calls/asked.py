"""A tool request as it came off the bus: read, named, and told apart from another under the same name. Pure.

The times in a request are not part of what is asked: a request that is made anew with other times is the same one.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from schemas import headers, keys, subjects
from schemas.events import MAX_MESSAGE_BYTES, Envelope, ToolRequest

_Message = Envelope[ToolRequest]
_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class Unacceptable(ValueError):
    """A message that can never be taken up; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One attempt of one step. `route` is the last token of the subject, `body` the message as it came.

    `digest` tells what is asked for, `trace_id` (32 hex digits) is the trace of the run.
    """

    request: ToolRequest
    route: str
    body: bytes
    digest: str
    trace_id: str

    @property
    def key(self) -> str:
        """`run_id:step:tool:attempt`: the name of the call, also towards the tool."""
        return keys.call(self.request.run_id, self.request.step, self.request.tool, self.request.attempt)

    def facts(self) -> dict[str, object]:
        """What a log line says of the call."""
        request = self.request
        return {"run_id": request.run_id, "step": request.step, "tool": request.tool, "attempt": request.attempt}


def read_request(subject: str, body: bytes, message_headers: Mapping[str, str]) -> Asked:
    """The request in a message. Raises Unacceptable."""
    route = route_of(subject)
    if route == subject or not subjects.NAME.fullmatch(route):
        raise Unacceptable(f"subject {subject[:80]} is not {subjects.TOOL_REQUEST} and the name of a route")
    if len(body) > MAX_MESSAGE_BYTES:
        raise Unacceptable(f"a message of {len(body)} bytes: at most {MAX_MESSAGE_BYTES} are taken")
    found = _TRACEPARENT.fullmatch(message_headers.get(headers.TRACEPARENT, ""))
    return read_again(route, body, trace_id=found[1] if found else None)


def route_of(subject: str) -> str:
    """What follows the name of the event."""
    return subject.removeprefix(f"{subjects.TOOL_REQUEST}.")


def read_again(route: str, body: bytes, *, trace_id: str | None) -> Asked:
    """The request in a body that was kept. Without a trace id it gets one of its run's. Raises Unacceptable."""
    subject = subjects.tool_request(route)
    try:
        # A newer agent may send fields that we do not know yet.
        envelope = _Message.model_validate_json(body, extra="ignore")
    except ValidationError as error:
        raise Unacceptable(f"not a valid {subjects.TOOL_REQUEST}: {_flaws(error)}") from None
    if envelope.type != subject:
        raise Unacceptable(f"a message of another type came on subject {subject}")
    request = envelope.payload
    trace_id = trace_id or _digest(request.run_id)[:32]
    return Asked(request=request, route=route, body=body, digest=_digest_of(request, route), trace_id=trace_id)


def _digest_of(request: ToolRequest, route: str) -> str:
    asked = [route, request.tool, request.tool_command, request.tool_payload]
    return _digest(json.dumps(asked, sort_keys=True, separators=(",", ":"), allow_nan=False))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _flaws(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)[:3]
    return "; ".join(f"{'.'.join(map(str, flaw['loc']))[:200] or 'body'}: {flaw['msg']}" for flaw in found)
