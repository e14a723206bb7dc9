"""Traces of real runs are complete, whichever process is killed and whenever the receiver is away."""

from collections.abc import Sequence
from pathlib import Path

from agent_service.trust.identity import trace_id
from tests.kit.otlp import Otlp, Trace, receiving
from tests.kit.stack import lines, recording, running, to_the_end, touch, wake
from tests.kit.waiting import until

STUMBLING = {"action": {"tool": "probe", "command": "misbehave", "arguments": {"how": "stumble"}}}
THROUGH_EVERYTHING = """
invoke_agent agentic-loop !
  wait queued
  chat script:played
  chat script:played
  execute_tool probe
    attempt 1
      job probe record
  chat script:played
  execute_tool probe !
    attempt 1 !
      job probe misbehave !
    attempt 2 !
      job probe misbehave !
"""
"""Siblings in the order of their start, except those that start at nearly the same instant."""


def found(otlp: Otlp, run_id: str) -> Trace:
    return otlp.traces().get(trace_id(run_id), Trace(()))


def paths(tree: Sequence[str]) -> list[str]:
    """Each line of an indented tree with all above it, sorted: the order of siblings does not count."""
    found: list[str] = []
    above: list[str] = []
    for line in tree:
        name = line.strip()
        above[(len(line) - len(name)) // 2 :] = [name]
        found.append(" > ".join(above))
    return sorted(found)


async def test_a_run_with_a_crash_a_restart_and_a_retry_is_one_whole_tree(tmp_path: Path) -> None:
    """An agent is killed while a tool works, and another tool fails and is tried again."""
    file, go = tmp_path / "marks" / "lines", tmp_path / "marks" / "go"
    script = recording(file, go=go, steps=2)  # the first step waits for `go`
    (second,) = [rule for rule in script["rules"] if rule.get("when") == {"steps": 1}]
    second["plan"] = STUMBLING
    with receiving() as otlp:
        told = {"telemetry": {"endpoint": otlp.url}, "log": {"level": "info"}}
        agent = told | {"limits": {"max_attempts": 2, "retry_base_s": 0.2}}
        async with running(tmp_path / "stack", script, agent=agent, gateway=told) as made:
            run_id = await wake(made)
            await until(lambda: lines(file) == 1, within_s=30)
            made.agent.kill()
            made.gateway.kill()
            touch(go, 1)
            ended = await to_the_end(made, run_id)
            assert (ended["state"], ended["class"]) == ("escalated", "tool_exhausted"), ended
        await until(lambda: len((trace := found(otlp, run_id)).spans) > 1 and not trace.orphans, within_s=30)
        trace = found(otlp, run_id)
    assert paths(trace.tree()) == paths(THROUGH_EVERYTHING.split("\n")[1:-1])
    (root,) = trace.roots
    assert (root.started, root.ended) == (min(s.started for s in trace.spans), max(s.ended for s in trace.spans))
    assert (root.attributes["agentic.state"], root.attributes["agentic.class"]) == ("escalated", "tool_exhausted")
    assert {span.service for span in trace.spans} == {"agentic-loop", "ductile-gateway"}
    assert {span.attributes["agentic.run_id"] for span in trace.spans} == {trace.roots[0].attributes["agentic.run_id"]}
