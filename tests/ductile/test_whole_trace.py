"""The whole trace of a run whose tools are jobs of a Ductile: with a kill, a job that is found again, and a retry."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_service.identity import trace_id
from tests.ductile.under_test import DuctileUnderTest
from tests.e2e.bodies import FRAME, running, to_the_end, wake
from tests.kit.otlp import Otlp, Received, Trace, receiving
from tests.kit.waiting import until

ATTEMPTS = 3
"""One of the first step, two of the second."""
PROBE = "publish agentic.tool_request.probe"


def looking(**arguments: Any) -> dict[str, Any]:
    return {"action": {"tool": "probe", "command": "look", "arguments": arguments}}


def holding_then_insisting(go: Path) -> dict[str, Any]:
    """A script whose first step waits for `go`, and whose second fails as often as it is tried."""
    on = {"verdict": "continue", "summary": "on"}
    return {
        "name": "holding",
        "rules": [
            FRAME,
            {"phase": "plan", "plan": looking(do="hold", until=str(go))},
            {"phase": "reflect", "when": {"steps": 1}, "reflect": on, "plan": looking(do="insist")},
        ],
    }


def below(trace: Trace, attempt: Received) -> Sequence[Received]:
    """What is told below the span that published the request of an attempt."""
    (published,) = (span for span in trace.children(attempt) if span.name == PROBE)
    return trace.children(published)


def found(otlp: Otlp, run_id: str) -> Trace:
    return otlp.traces().get(trace_id(run_id), Trace(()))


def is_whole(otlp: Otlp, run_id: str) -> bool:
    """Told to its end, with all that is said by either service of its three attempts."""
    trace = found(otlp, run_id)
    ended = bool(trace.named("finish_run")) and len(trace.named("publish agentic.tool_result")) == ATTEMPTS
    return ended and len(trace.named("process agentic.tool_result")) == ATTEMPTS and not trace.orphans


async def test_a_run_with_a_killed_gateway_and_a_retry_is_one_tree_with_every_job(
    measured: DuctileUnderTest, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with receiving() as otlp:
        telemetry = {"telemetry": {"endpoint": otlp.url}}
        gateway = telemetry | {
            "runner": "ductile",
            "ductile": {"url": measured.url, "token": measured.token},
            "tools": {"probe": {"commands": ["look"]}},
        }
        agent = telemetry | {"limits": {"max_attempts": 2, "retry_base_s": 0.2}}
        async with running(tmp_path / "stack", holding_then_insisting(go), agent=agent, gateway=gateway) as made:
            run_id = await wake(made)
            await until(lambda: len(measured.executions) == 1, within_s=30)
            made.gateway.kill()
            go.touch()
            ended = await to_the_end(made, run_id)
            assert (ended["state"], ended["class"]) == ("escalated", "tool_exhausted"), ended
            await until(lambda: is_whole(otlp, run_id), within_s=60, otherwise=lambda: str(found(otlp, run_id)))
    trace = found(otlp, run_id)
    assert [root.name for root in trace.roots] == ["start_run"]
    first, second = trace.named("execute_tool probe")
    (held,) = (span for span in trace.children(first) if span.name == "attempt 1")
    told = [span.name for span in below(trace, held)]
    assert sorted(set(told)) == ["job probe look", "process agentic.tool_request.probe", "publish agentic.tool_result"]
    assert told.count("job probe look") == told.count("publish agentic.tool_result") == 1
    tries = [span for span in trace.children(second) if span.name.startswith("attempt")]
    assert [(span.name, span.error is not None) for span in tries] == [("attempt 1", True), ("attempt 2", True)]
    for attempt in tries:
        spans = {span.name: span for span in below(trace, attempt)}
        assert spans["POST /plugin/probe/look"].attributes["http.response.status_code"] == 202
        job = spans["job probe look"]
        assert (job.error, job.attributes["agentic.job_attempts"] >= 1) == ("tool_error", True)
        assert job.attributes["agentic.job_id"] == spans["POST /plugin/probe/look"].attributes["agentic.job_id"]
    results = {span.span_id for span in trace.named("publish agentic.tool_result")}
    taken = {link[1] for span in trace.named("process agentic.tool_result") for link in span.links}
    assert taken == results
