"""A tool call as an event for Ductile's relay ingress. Pure.

Its dedupe key is the key of the call, so that the same call is the same event however often it is sent. What it belongs
to stands in the payload and in the baggage; neither a model nor a tool can say otherwise (RFC-103, reserved keys).
"""

from collections.abc import Mapping

from pydantic import JsonValue

from ductile_gateway.ductile.relay_envelope import RelayedEvent
from schemas.events import RESERVED_KEYS


def tool_event(event_type: str, key: str, payload: Mapping[str, JsonValue]) -> RelayedEvent:
    """The event of the call with this key, which is `run_id:step:tool:attempt`."""
    run_id, step, tool, attempt = key.rsplit(":", 3)
    belongs: dict[str, JsonValue] = {"run_id": run_id, "step": int(step), "tool": tool}
    asked = {name: value for name, value in payload.items() if name not in RESERVED_KEYS}
    return RelayedEvent(event_type, key, asked | belongs | {"attempt": int(attempt)}, belongs)
