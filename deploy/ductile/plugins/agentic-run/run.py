#!/usr/bin/env python3
"""Asks the agent how runs stand, and tells it what people say (Ductile plugin protocol v2). Standard library only.

Nothing here waits: a run takes minutes or hours, and a job one look. Ductile runs a job again after an error, a timeout
or a restart: what is said to a run therefore carries a signal_id that is the same each time, and is heard once.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# How the agent is asked is in the folder of agentic-wake, which stands beside this one.
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "agentic-wake"))

import agent as agents
from agent import API, ID, Agent, Failure, agent_of, asked, one_line, refusal

DEFAULT_SECRET = "agentic-run-token"  # noqa: S105 - the name of a secret, not the secret
LOOKED_AT = 50
SAYINGS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "answer": ("answers", ("answer", "outcome", "constraints")),
    "approve": ("approvals", ("arguments_hash", "step", "reason")),
    "reject": ("approvals", ("arguments_hash", "step", "reason")),
    "cancel": ("cancel", ("reason",)),
}
"""What can be said to a run: the last part of the path, and the fields that it takes."""
SHOWN = ("run_id", "wake_id", "status", "goal", "outcome", "reason", "class", "asks", "artifacts", "ended_at")
ADVICE = {
    403: "The agent's token needs the scope `read`, or `control` to speak to runs",
    404: "The agent has no such run",
    409: "Look at how the run stands by now",
    410: "The run was removed, by the agent's rule of how long runs are kept",
    422: "Change what is said",
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The response to a request. Raises Failure, OSError or HTTPException."""
    agent = agent_of(request, secret=DEFAULT_SECRET)
    command = request["command"]
    if command == "health":
        return {"status": "ok", "result": f"agentic-run can be run; it asks the agent at {agent.url}"}
    payload = _payload(request)
    if command == "handle":
        command = payload.get("do")
        if command not in ("status", *SAYINGS):
            raise Failure("invalid_arguments", f"`do` must be one of status, {', '.join(SAYINGS)}")
    if command == "poll":
        return _changed(request, agent)
    run_id = _run_id(payload)
    if command in SAYINGS:
        return _told(request, agent, run_id, command, payload)
    run = _shown(_asked(request, agent, f"{API}runs/{run_id}"))
    return {"status": "ok", "result": _in_words(run), "output": run, "events": [_event("agent.run.status", run)]}


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


def _told(request: dict[str, Any], agent: Agent, run_id: str, command: str, payload: dict[str, Any]) -> dict[str, Any]:
    place, fields = SAYINGS[command]
    said = {name: payload[name] for name in fields if payload.get(name) is not None}
    if place == "approvals":
        said["decision"] = command
    if place != "cancel":
        said["signal_id"] = payload.get("signal_id") or f"ductile:{request['job_id']}"
    try:
        body = json.dumps(said, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise Failure("invalid_arguments", "it holds what JSON in UTF-8 cannot carry") from None
    heard = _asked(request, agent, f"{API}runs/{run_id}/{place}", body)
    status = one_line(str(heard.get("status", "unknown")))
    output = {"run_id": run_id, "said": command, "status": status}
    told = f"Run {run_id} has heard it ({command}); it is {status}."
    return {"status": "ok", "result": told, "output": output, "events": [_event("agent.run.told", output)]}


def _changed(request: dict[str, Any], agent: Agent) -> dict[str, Any]:
    """What has become of the newest runs since the last look; the first look only remembers."""
    before = (request.get("state") or {}).get("statuses")
    listed = _asked(request, agent, f"{API}runs?limit={LOOKED_AT}").get("runs")
    runs = [_shown(run) for run in listed if isinstance(run, dict)] if isinstance(listed, list) else []
    statuses = {str(run.get("run_id")): run.get("status") for run in runs}
    known = before if isinstance(before, dict) else statuses
    changed = [run for run in runs if known.get(str(run.get("run_id"))) != run.get("status")]
    told = "; ".join(_in_words(run) for run in changed) or "no run has changed"
    return {
        "status": "ok",
        "result": told,
        "output": {"changed": changed},
        "state_updates": {"statuses": statuses},
        "events": [_event("agent.run.changed", run) for run in changed],
    }


def _asked(request: dict[str, Any], agent: Agent, path: str, body: bytes | None = None) -> dict[str, Any]:
    answered = asked(request, agent, path, body)
    if not 200 <= answered.status < 300:
        raise refusal(answered, agent, ADVICE)
    if not answered.content:
        told = f"{agent.url} answered {answered.status} with nothing that can be read: is it the address of the agent?"
        raise Failure("transient", told, retry=True)
    if agent.token and agent.token in json.dumps(answered.content):
        raise Failure("tool_error", "the agent's answer repeats the token: it is not kept")
    return answered.content


def _shown(run: dict[str, Any]) -> dict[str, Any]:
    """What pipelines can use of the view of a run."""
    return {name: run[name] for name in SHOWN if run.get(name) is not None}


def _in_words(run: dict[str, Any]) -> str:
    asks = run.get("asks")
    for_whom = " and waits for a person" if isinstance(asks, dict) else ""
    said = run.get("outcome") or run.get("reason")
    told = f": {one_line(str(said))}" if said else ""
    return f"run {run.get('run_id')} is {run.get('status')}{for_whom}{told}"


def _event(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Of a type that agentic-wake refuses: no run wakes the next by itself."""
    return {"type": kind, "payload": payload}


def main() -> None:
    agents.main(answer)


if __name__ == "__main__":
    main()
