"""The trace of a run, told from its journal: one tree, whatever happens, and the same whenever it is told."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_service.core.events import ModelReplied
from agent_service.models.prompts.prompt import as_text
from agent_service.run.journal import Entry
from agent_service.run.moments import retell
from agent_service.telling.spans.attributes import Content
from agent_service.telling.spans.trace import spans
from groundwork.telemetry.span import Context, Span
from tests.core.cues import (
    RUN_ID,
    cancel,
    due,
    errs,
    frames,
    goes_on,
    plans,
    returns,
    signal,
    started,
    unavailable,
    wake,
)
from tests.core.script import Script
from tests.core.stories import STORIES
from tests.projections.journals import MODEL, commits_of, entries_of, priced_example, second_by_second, worked_example

ANY_STORY = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def told(entries: list[Entry], after: int = 0, content: Content | None = None) -> list[Span]:
    return list(spans(retell(entries), after=after, content=content))


def tree(found: list[Span], parent: str | None = None, indent: str = "") -> list[str]:
    """One line per span, in the order of their beginnings, with the class of its error."""
    lines = []
    for span in sorted((s for s in found if s.parent_id == parent), key=lambda s: s.started_at):
        lines += [f"{indent}{span.name}" + (f" ! {span.error}" if span.error else "")]
        lines += tree(found, span.span_id, indent + "  ")
    return lines


@ANY_STORY
@given(STORIES, st.data())
def test_the_trace_is_one_tree_at_every_point_of_the_journal(story: Script, data: st.DataObject) -> None:
    entries = entries_of(story)
    found = told(entries[: data.draw(st.integers(1, len(entries)))])
    known: set[str | None] = {None}
    for span in found:
        assert span.parent_id in known, f"{span.name} is told before the span it belongs to"
        assert span.span_id not in known, f"{span.name} has the id of another"
        known.add(span.span_id)
    assert [span.name for span in found if span.parent_id is None] == ["start_run"]


@ANY_STORY
@given(STORIES, st.data())
def test_a_trace_told_in_parts_is_the_trace_told_at_once(story: Script, data: st.DataObject) -> None:
    entries = entries_of(story)
    first = data.draw(st.integers(0, len(entries)))
    assert told(entries[:first]) + told(entries, after=first) == told(entries)


@ANY_STORY
@given(STORIES)
def test_every_reply_and_every_attempt_of_an_ended_run_is_in_its_trace(story: Script) -> None:
    commits = commits_of(story)
    if not commits[-1].state.final:
        return
    found = told([commit.entry for commit in commits])
    replies = [span for span in found if "gen_ai.response.model" in span.attributes]
    assert len(replies) == sum(commit.entry.kind == ModelReplied.__name__ for commit in commits)
    ended = commits[-1].state
    attempts = {(s.attributes["agentic.step"], s.name) for s in found if s.name.startswith("attempt")}
    steps = {span.attributes["agentic.step"] for span in found if span.name.startswith("execute_tool")}
    assert (len(attempts), len(steps)) == (ended.attempts, ended.step)
    assert sum(span.name == "finish_run" for span in found) == 1 + ended.reopened


def test_a_run_is_a_tree_of_turns_with_their_phases_calls_and_steps() -> None:
    assert tree(told(entries_of(priced_example()))) == [
        "start_run",
        "  publish agentic.start",
        "  wait queued",
        "  invoke_agent agentic-loop",
        "    frame",
        "      chat priced",
        "    plan",
        "  execute_tool fetch",
        "    attempt 1",
        "      publish agentic.tool_request.jina-reader",
        "  invoke_agent agentic-loop",
        "    reflect",
        "      chat priced ! lost",
        "      chat priced",
        "    plan",
        "  execute_tool text-report",
        "    attempt 1",
        "      publish agentic.tool_request.fabric",
        "  invoke_agent agentic-loop",
        "    reflect",
        "      chat priced",
        "  finish_run",
        "    publish agent.completed",
    ]


def test_retries_waits_pauses_and_the_end_are_in_the_tree() -> None:
    story = second_by_second(
        wake(max_steps=1, on_budget="pause"),
        started(),
        frames(),
        unavailable("try_again"),
        due,
        plans(),
        errs("timeout", retryable=True),
        due,
        returns(),
        goes_on(),
        signal("resume"),
        cancel(),
    )
    assert tree(told(entries_of(story))) == [
        "start_run",
        "  wait queued",
        "  invoke_agent agentic-loop",
        "    frame",
        "      chat scripted",
        "    plan ! overloaded",
        "      chat ! overloaded",
        "  wait model_retry",
        "  invoke_agent agentic-loop",
        "    plan",
        "      chat scripted",
        "  execute_tool fetch",
        "    attempt 1 ! timeout",
        "      publish agentic.tool_request.jina-reader",
        "    wait tool_retry",
        "    attempt 2",
        "      publish agentic.tool_request.jina-reader",
        "  invoke_agent agentic-loop",
        "  invoke_agent agentic-loop",
        "  invoke_agent agentic-loop",
        "    reflect",
        "      chat scripted",
        "    plan ! budget_steps",
        "    publish agent.escalated",
        "    publish agent.waiting",
        "  wait person",
        "  invoke_agent agentic-loop",
        "    publish agent.escalated",
        "    publish agent.waiting",
        "  wait person",
        "  finish_run",
        "    publish agent.cancelled",
        "  invoke_agent agentic-loop",
    ]


def test_a_model_call_says_what_it_cost_and_who_answered() -> None:
    (call,) = [s for s in told(entries_of(priced_example())) if s.attributes.get("gen_ai.usage.input_tokens") == 800]
    assert call.kind == "client"
    assert call.attributes == {
        "agentic.run_id": RUN_ID,
        "agentic.wake_id": "wake-1",
        "agentic.cost_usd": 0.0042,
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": RUN_ID,
        "gen_ai.request.model": "priced",
        "gen_ai.response.model": MODEL,
        "gen_ai.response.id": "msg_1",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 800,
        "gen_ai.usage.output_tokens": 120,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.cache_creation.input_tokens": 0,
    }


def test_the_root_is_linked_to_the_trace_of_whoever_asked_for_the_run() -> None:
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    (root, *_) = told(entries_of(Script() >> replace(wake(), traceparent=caller)))
    assert root.links == (Context("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"),)


def test_what_models_and_tools_said_is_told_only_when_it_is_asked_for() -> None:
    entries = entries_of(worked_example())
    words = ("critique", "Matt Joyce", "mattjoyce.ai", "goal_statement", "You are")
    assert not [word for word in words if word in repr(told(entries))]
    assert [word for word in words if word in repr(told(entries, content=Content(as_text)))] == [*words]
