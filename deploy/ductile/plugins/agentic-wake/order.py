"""What the agent is asked for: taken from a job's request, checked, and as the bytes that are sent.

Values of constraints and the form of a callback are the agent's to judge: it names the field that does not fit.
"""

import json
import re
from typing import Any

from agent import ID, Failure, one_line

MAX_GOAL_BYTES, MAX_BODY_BYTES = 32 * 1024, 256 * 1024
LONGEST_TOLD = 4000
FIELDS = {"goal": str, "context": dict, "constraints": dict, "callback": str, "wake_id": str, "untrusted": bool}
KINDS = {str: "text", dict: "an object", bool: "true or false"}
TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
"""The W3C form, of any version."""


def order_of(request: dict[str, Any]) -> dict[str, Any]:
    """What the agent is asked for, the same at each attempt of a job. Raises Failure when it cannot be used."""
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
    """The order, with more or less beside it."""
    event, goal = request.get("event") or {}, (request.get("config") or {}).get("goal")
    kind = str(event.get("type", ""))
    if kind.startswith("agent."):
        raise Failure("invalid_arguments", "an event that tells of a run (agent.*) must not wake the agent again")
    payload = (event or request).get("payload") or {}
    if not isinstance(payload, dict):
        raise Failure("invalid_arguments", "the payload must be an object with a goal")
    return payload if goal is None or request["command"] != "handle" else _about(goal, kind, payload)


def _about(goal: object, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """The order of an instance that has its goal from the settings: what comes is what it is about, and no order
    itself. The same job is pursued once, however often Ductile tells of it."""
    told = {name: _cut(value) for name, value in payload.items() if not name.startswith("ductile")}
    order = {"goal": goal, "context": {"event": kind} | told}
    job_id = payload.get("job_id")
    return order | ({"wake_id": job_id} if isinstance(job_id, str) and ID.fullmatch(job_id) else {})


def _cut(value: object) -> object:
    """A text as it fits into a context. The agent takes 64 KiB, and a plugin may word its error at any length."""
    return f"{value[:LONGEST_TOLD]}…" if isinstance(value, str) and len(value) > LONGEST_TOLD else value


def traceparent_of(request: dict[str, Any]) -> str:
    """The place in a trace that the order comes from, which its run is linked to: from the payload, or from the context
    (baggage) of the pipeline; empty where there is none."""
    payload = (request.get("event") or request).get("payload") or {}
    places = (place.get("traceparent") for place in (payload, request.get("context")) if isinstance(place, dict))
    return next((said for said in places if isinstance(said, str) and TRACEPARENT.fullmatch(said)), "")


def _check_goal(goal: str) -> None:
    if not goal.strip():
        raise Failure("invalid_arguments", "goal is missing or blank: say what the agent is to reach")
    if len(goal.encode("utf-8", "replace")) > MAX_GOAL_BYTES:
        raise Failure("invalid_arguments", f"goal must be at most {MAX_GOAL_BYTES} bytes of UTF-8")
    if "\0" in goal:
        raise Failure("invalid_arguments", "goal must not contain a NUL character")


def body_of(order: dict[str, Any]) -> bytes:
    """The order as it is sent. Raises Failure when it cannot be."""
    try:
        body = json.dumps(order, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        told = "the order holds what JSON in UTF-8 cannot carry: half a character, or no number"
        raise Failure("invalid_arguments", told) from None
    if len(body) > MAX_BODY_BYTES:
        raise Failure("invalid_arguments", f"the order must be at most {MAX_BODY_BYTES} bytes: shorten the context")
    return body
