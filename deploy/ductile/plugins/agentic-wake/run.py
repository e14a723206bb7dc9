#!/usr/bin/env python3
"""Wakes the agent service (Ductile plugin protocol v2). Standard library only, Python 3.11 or newer.

The job succeeds when the agent has accepted the order; its run may still fail. Ductile repeats a job after an error, a
timeout or a restart: everything in the order, such as its wake_id, therefore stays the same.
"""

from typing import Any

import agent as agents
from agent import API, ID, Agent, Answer, Failure, agent_of, ask, refusal
from order import body_of, order_of, traceparent_of

DEFAULT_SECRET = "agentic-wake-token"  # noqa: S105 - the name of a secret, not the secret
ADVICE = {
    403: "The agent's token needs the scope `wake`",
    404: "There is no wake API at `url`: it is the address of the agent, such as http://127.0.0.1:8700",
    409: "This wake_id stands for another order: give each order a wake_id of its own, or none",
    413: "Shorten the context",
    422: "Change the order",
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the response to a request. Raises Failure, OSError or HTTPException."""
    agent = agent_of(request, secret=DEFAULT_SECRET)
    if request["command"] == "health":
        return {"status": "ok", "result": f"agentic-wake can be run; it wakes the agent at {agent.url}"}
    order, traceparent = order_of(request), traceparent_of(request)
    headers = {"traceparent": traceparent} if traceparent else {}
    return _accepted(ask(request, agent, f"{API}wake", body_of(order), headers), agent, order["wake_id"])


def _accepted(answer: Answer, agent: Agent, wake_id: str) -> dict[str, Any]:
    """Returns the response for an accepted order. Raises Failure for any other answer."""
    if not 200 <= answer.status < 300:
        raise refusal(answer, agent, ADVICE)
    run_id = answer.content.get("run_id")
    if answer.content.get("accepted") is not True or not isinstance(run_id, str) or not ID.fullmatch(run_id):
        message = f"{agent.url} answered {answer.status} without accepting the order: is it the address of the agent?"
        raise Failure("transient", message, retry=True)
    if agent.token and agent.token in run_id:
        raise Failure("tool_error", "the agent's answer repeats the token: it is not kept")
    woken = {"run_id": run_id, "wake_id": wake_id, "status_url": f"{agent.url}{API}runs/{run_id}"}
    event = {"type": "agent.wake.accepted", "payload": woken, "dedupe_key": f"agentic:run:{run_id}:accepted"}
    return {
        "status": "ok",
        "result": f"The agent accepted the order as run {run_id}, which is not completed yet: {woken['status_url']}",
        "output": woken,
        "state_updates": {"last_run_id": run_id},
        "events": [event],
    }


def main() -> None:
    agents.main(answer)


if __name__ == "__main__":
    main()
