"""Orders for the agent: taken from a job's request, checked, and encoded.

The agent checks the values of constraints and the form of a callback: it names the field that does not fit.
"""

import json
import re
from typing import Any

from agent import ID, Failure, one_line

MAX_GOAL_BYTES, MAX_BODY_BYTES = 32 * 1024, 256 * 1024
LONGEST_VALUE = 4000
FIELDS = {"goal": str, "context": dict, "constraints": dict, "callback": str, "wake_id": str, "untrusted": bool}
KINDS = {str: "text", dict: "an object", bool: "true or false"}
TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
"""Form of W3C Trace Context, of any version."""


def order_of(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the order in a request, the same at each attempt of a job. Raises Failure."""
    config, payload = request.get("config") or {}, _payload(request)
    unknown = sorted(payload.keys() - FIELDS.keys() - {"traceparent"})
    if unknown and request["command"] == "wake":
        raise Failure("invalid_arguments", f"{one_line(unknown[0])} is not known here: give {', '.join(FIELDS)}")
    order = {name: payload[name] for name in FIELDS if payload.get(name) is not None}
    for name, value in order.items():
        if not isinstance(value, FIELDS[name]):
            raise Failure("invalid_arguments", f"{name} must be {KINDS[FIELDS[name]]}")
    _check_goal(order.get("goal", ""))
    order.setdefault("wake_id", f"ductile:{request['job_id']}")
    if config.get("untrusted") in (True, "true"):
        order["untrusted"] = True
    if not ID.fullmatch(order["wake_id"]):
        raise Failure("invalid_arguments", "wake_id must be 1 to 128 of the characters A-Z a-z 0-9 . _ : -")
    return order


def _payload(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the order, which may have other fields beside it."""
    event, goal = request.get("event") or {}, (request.get("config") or {}).get("goal")
    kind = str(event.get("type", ""))
    if kind.startswith("agent."):
        raise Failure("invalid_arguments", "an event that tells of a run (agent.*) must not wake the agent again")
    payload = (event or request).get("payload") or {}
    if not isinstance(payload, dict):
        raise Failure("invalid_arguments", "the payload must be an object with a goal")
    return payload if goal is None or request["command"] != "handle" else _from_event(goal, kind, payload)


def _from_event(goal: object, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Returns the order of an instance whose goal is in its settings: the event is the context. Each job is pursued
    once, however often Ductile reports it."""
    context = {name: _cut(value) for name, value in payload.items() if not name.startswith("ductile")}
    order = {"goal": goal, "context": {"event": kind} | context}
    job_id = payload.get("job_id")
    return order | ({"wake_id": job_id} if isinstance(job_id, str) and ID.fullmatch(job_id) else {})


def _cut(value: object) -> object:
    """Cuts a long text: the agent takes contexts of 64 KiB, and a plugin's error may have any length."""
    return f"{value[:LONGEST_VALUE]}…" if isinstance(value, str) and len(value) > LONGEST_VALUE else value


def traceparent_of(request: dict[str, Any]) -> str:
    """Returns the traceparent that the run is linked to: of the payload, or of the pipeline's context (baggage); else
    ""."""
    payload = (request.get("event") or request).get("payload") or {}
    given = (place.get("traceparent") for place in (payload, request.get("context")) if isinstance(place, dict))
    return next((one for one in given if isinstance(one, str) and TRACEPARENT.fullmatch(one)), "")


def _check_goal(goal: str) -> None:
    if not goal.strip():
        raise Failure("invalid_arguments", "goal is missing or blank: say what the agent is to reach")
    if len(goal.encode("utf-8", "replace")) > MAX_GOAL_BYTES:
        raise Failure("invalid_arguments", f"goal must be at most {MAX_GOAL_BYTES} bytes of UTF-8")
    if "\0" in goal:
        raise Failure("invalid_arguments", "goal must not contain a NUL character")


def body_of(order: dict[str, Any]) -> bytes:
    """Encodes the order. Raises Failure."""
    try:
        body = json.dumps(order, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        message = "the order holds what JSON in UTF-8 cannot carry: half a character, or no number"
        raise Failure("invalid_arguments", message) from None
    if len(body) > MAX_BODY_BYTES:
        raise Failure("invalid_arguments", f"the order must be at most {MAX_BODY_BYTES} bytes: shorten the context")
    return body
