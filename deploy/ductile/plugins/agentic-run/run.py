#!/usr/bin/env python3
"""Shows runs of the agent and sends people's signals to them (Ductile plugin protocol v2). Standard library only.

A job never waits for a run, which takes minutes or hours. Ductile repeats a job after an error, a timeout or a
restart: each signal therefore carries a signal_id that stays the same, and the run takes it once.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# The module `agent` is in the folder of agentic-wake, beside this one.
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "agentic-wake"))

import agent as agents
from agent import API, ID, Agent, Failure, agent_of, ask, one_line, refusal

DEFAULT_SECRET = "agentic-run-token"  # noqa: S105 - the name of a secret, not the secret
NEWEST = 50
SIGNALS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "answer": ("answers", ("answer", "outcome", "constraints")),
    "approve": ("approvals", ("arguments_hash", "step", "reason")),
    "reject": ("approvals", ("arguments_hash", "step", "reason")),
    "cancel": ("cancel", ("reason",)),
}
"""Signals to a run: the last part of the path, and the accepted fields."""
VIEW_FIELDS = ("run_id", "wake_id", "status", "goal", "outcome", "reason", "class", "asks", "artifacts", "ended_at")
ADVICE = {
    403: "The agent's token needs the scope `read`, or `control` to speak to runs",
    404: "The agent has no such run",
    409: "Look at how the run stands by now",
    410: "The run was removed, by the agent's rule of how long runs are kept",
    422: "Change what is said",
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the response to a request. Raises Failure, OSError or HTTPException."""
    agent = agent_of(request, secret=DEFAULT_SECRET)
    command = request["command"]
    if command == "health":
        return {"status": "ok", "result": f"agentic-run can be run; it asks the agent at {agent.url}"}
    payload = _payload(request)
    if command == "handle":
        command = payload.get("do")
        if command not in ("status", *SIGNALS):
            raise Failure("invalid_arguments", f"`do` must be one of status, {', '.join(SIGNALS)}")
    if command == "poll":
        return _poll(request, agent)
    run_id = _run_id(payload)
    if command in SIGNALS:
        return _signal(request, agent, run_id, command, payload)
    run = _view(_ask(request, agent, f"{API}runs/{run_id}"))
    return {"status": "ok", "result": _summary(run), "output": run, "events": [_event("agent.run.status", run)]}


def _payload(request: dict[str, Any]) -> dict[str, Any]:
    payload = (request.get("event") or request).get("payload") or {}
    if not isinstance(payload, dict):
        raise Failure("invalid_arguments", "the payload must be an object with a run_id")
    return payload


def _run_id(payload: dict[str, Any]) -> str:
    run_id = payload.get("run_id")
    if not isinstance(run_id, str) or not ID.fullmatch(run_id):
        raise Failure("invalid_arguments", "run_id is missing: say which run, as `accepted` of agentic-wake names it")
    return run_id


def _signal(
    request: dict[str, Any], agent: Agent, run_id: str, command: str, payload: dict[str, Any]
) -> dict[str, Any]:
    place, fields = SIGNALS[command]
    body_fields = {name: payload[name] for name in fields if payload.get(name) is not None}
    if place == "approvals":
        body_fields["decision"] = command
    if place != "cancel":
        body_fields["signal_id"] = payload.get("signal_id") or f"ductile:{request['job_id']}"
    try:
        body = json.dumps(body_fields, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise Failure("invalid_arguments", "it holds what JSON in UTF-8 cannot carry") from None
    reply = _ask(request, agent, f"{API}runs/{run_id}/{place}", body)
    status = one_line(str(reply.get("status", "unknown")))
    output = {"run_id": run_id, "said": command, "status": status}
    summary = f"Run {run_id} has heard it ({command}); it is {status}."
    return {"status": "ok", "result": summary, "output": output, "events": [_event("agent.run.told", output)]}


def _poll(request: dict[str, Any], agent: Agent) -> dict[str, Any]:
    """Reports the newest runs whose status changed since the last poll; the first poll only records them."""
    before = (request.get("state") or {}).get("statuses")
    listed = _ask(request, agent, f"{API}runs?limit={NEWEST}").get("runs")
    runs = [_view(run) for run in listed if isinstance(run, dict)] if isinstance(listed, list) else []
    statuses = {str(run.get("run_id")): run.get("status") for run in runs}
    known = before if isinstance(before, dict) else statuses
    changed = [run for run in runs if known.get(str(run.get("run_id"))) != run.get("status")]
    summary = "; ".join(_summary(run) for run in changed) or "no run has changed"
    return {
        "status": "ok",
        "result": summary,
        "output": {"changed": changed},
        "state_updates": {"statuses": statuses},
        "events": [_event("agent.run.changed", run) for run in changed],
    }


def _ask(request: dict[str, Any], agent: Agent, path: str, body: bytes | None = None) -> dict[str, Any]:
    reply = ask(request, agent, path, body)
    if not 200 <= reply.status < 300:
        raise refusal(reply, agent, ADVICE)
    if not reply.content:
        message = f"{agent.url} answered {reply.status} with nothing that can be read: is it the address of the agent?"
        raise Failure("transient", message, retry=True)
    if agent.token and agent.token in json.dumps(reply.content):
        raise Failure("tool_error", "the agent's answer repeats the token: it is not kept")
    return reply.content


def _view(run: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a run that pipelines use."""
    return {name: run[name] for name in VIEW_FIELDS if run.get(name) is not None}


def _summary(run: dict[str, Any]) -> str:
    asks = run.get("asks")
    waits = " and waits for a person" if isinstance(asks, dict) else ""
    reason = run.get("outcome") or run.get("reason")
    ending = f": {one_line(str(reason))}" if reason else ""
    return f"run {run.get('run_id')} is {run.get('status')}{waits}{ending}"


def _event(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Returns an event of a type that agentic-wake refuses, so that no run wakes the next by itself."""
    return {"type": kind, "payload": payload}


def main() -> None:
    agents.main(answer)


if __name__ == "__main__":
    main()
