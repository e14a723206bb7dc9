"""A run and those that it starts, as people see them: each leads to the other."""

from agent_service.core.graph.children import run_id_of
from agent_service.run.moments import retell
from agent_service.telling.answers.runs import run_view
from agent_service.telling.answers.why import Seen, why_view
from agent_service.telling.spans.trace import spans
from agent_service.trust.identity import root_span_id, trace_id
from groundwork.telemetry.span import Context
from tests.core.cues import a_waiting_parent, cancel, child_of
from tests.core.script import NOON
from tests.projections.journals import entries_of
from tests.projections.test_tasks import detail


def test_a_run_names_its_children_and_its_steps_and_a_child_its_parent() -> None:
    parent = a_waiting_parent()
    child = child_of(parent)
    shown, of_child = run_view(parent.state), run_view(child.state)
    assert [(one.run_id, one.step, one.task) for one in shown.children] == [(child.state.run_id, 1, None)]
    assert [step.child_run_id for step in shown.steps] == [child.state.run_id]
    assert detail(parent).child_run_id == child.state.run_id
    assert (of_child.parent_run_id, of_child.depth, of_child.children) == (parent.state.run_id, 1, ())


def test_a_run_that_waits_for_a_child_says_so_and_where_to_look() -> None:
    parent = a_waiting_parent()
    child = run_id_of(parent.state.run_id, parent.pending)
    shown = run_view(parent.state)
    assert shown.waiting_for is not None
    assert shown.waiting_for.kind == "child"
    why = why_view(parent.state, Seen(now=NOON))
    assert child in why.verdict
    assert why.remedy is not None
    assert why.remedy.command == f"agentic why {child}"


def test_the_traces_of_a_run_and_its_child_are_linked_both_ways() -> None:
    parent = a_waiting_parent()
    child = child_of(parent)
    of_parent, of_child = (list(spans(retell(entries_of(script)))) for script in (parent >> cancel(), child))
    (root,) = (span for span in of_child if span.parent_id is None)
    (link,) = root.links
    assert link.trace_id == trace_id(parent.state.run_id)
    assert link.span_id in {span.span_id for span in of_parent}
    (attempt,) = (span for span in of_parent if span.name == "attempt 1")
    assert attempt.links == (Context(trace_id=trace_id(child.state.run_id), span_id=root_span_id(child.state.run_id)),)
