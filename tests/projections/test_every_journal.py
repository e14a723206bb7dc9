"""Every view works for every journal: random stories of the core, at every entry."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import product

import pytest

from agent_service.core.events import ModelReplied
from agent_service.core.facts import RequestSent
from agent_service.core.waiting import acting_of
from agent_service.history.history import History
from agent_service.history.items import id_of
from agent_service.history.log_line import log_line
from agent_service.run.journal import Commit, replay
from agent_service.views.journal import entry_view, timeline_view
from agent_service.views.run import run_view
from agent_service.views.spans import spans_since_rest
from groundwork.telemetry.span import Span
from tests.core.script import Script, commits_of
from tests.core.stories import gathered, story
from tests.projections.courses import PLAYED
from tests.projections.fakes import EVER
from tests.projections.journals import entries_of, pages_of
from tests.projections.tellings import step_of


@pytest.mark.parametrize("number", range(30))
def test_every_run_can_be_told_in_every_way_at_every_point(number: int) -> None:
    commits = commits_of(story(number))
    changes = list(replay(commit.entry for commit in commits))
    seen = 1 + number % len(changes)
    check_pages(changes, seen)
    check_views(commits)
    check_spans(commits, changes, seen)


def check_pages(changes: list[Commit], seen: int) -> None:
    """trace.jsonl only grows; a reply is one line, and one more for its plan."""
    entries = [change.entry for change in changes]
    now, then = pages_of(entries), pages_of(entries[:seen])
    assert now["plan.md"].count("\n## Next action\n") == 1
    assert now["trace.jsonl"].startswith(then["trace.jsonl"])
    lines = Counter(json.loads(line)["entry"] for line in now["trace.jsonl"].splitlines())
    for change in changes:
        phases = {"ModelReplied": 1 + (getattr(change.event, "plan", None) is not None), "ModelUnavailable": 1}
        decided = lines[change.entry.seq]
        assert decided == phases.get(change.entry.kind, decided)


def check_views(commits: list[Commit]) -> None:
    """Views of runs and entries parse again, and each entry has a log line."""
    entries = [commit.entry for commit in commits]
    view = run_view(commits[-1].state, History(entry.record() for entry in entries))
    told = view.model_dump_json(by_alias=True, exclude_computed_fields=True)
    assert view.model_validate_json(told).model_dump(exclude={"steps"}) == view.model_dump(exclude={"steps"})
    shown = [entry_view(entry.record()) for entry in entries]
    assert [view.seq for view in shown] == list(range(1, len(entries) + 1))
    assert [view.status for view in shown] == [commit.state.status for commit in commits]
    for message, fields in map(log_line, replay(entries)):
        assert message
        json.dumps(fields, allow_nan=False)


@pytest.mark.parametrize(("play", "number"), [*product([story], (*range(30), 100)), *product([gathered], range(20))])
def test_what_is_open_in_a_timeline_is_what_the_run_waits_for_and_each_request_is_in_it(
    play: Callable[[int], Script], number: int
) -> None:
    """It only grows, and an entry that is told again changes nothing."""
    history, known = History(), dict[str, int]()
    changes = list(replay(entries_of(play(number))))
    for change in changes:
        history.extend([change, change])
        view, state = timeline_view(change.entry.run_id, history), change.state
        items = {item.id: item.entry for item in view.items}
        assert len(items) == len(view.items)
        assert known.items() <= items.items()
        known = items
        still = {item.kind for item in view.items if item.ended_at is None}
        assert view.status == state.status
        assert bool(still) is not state.final
        assert ("phase" in still) is (state.active_call is not None)
        assert [item.id for item in view.items if not item.depth] == [
            item.id for item in history.by_id.values() if not item.depth
        ]
        sent = {id_of(one.name) + f":attempt:{one.attempt}" for one in state.sent}
        assert {item.id for item in history.by_id.values() if item.ended_at is None and ":attempt:" in item.id} == sent
        now = acting_of(state.waiting)
        waiting = {one.name for one in now.pendings if one.task}
        waiting |= {(one.step, one.id, one.place[0]) for one in now.requests if one.id}
        tasks = {task.name for task in history.of_kind("task") if task.status in ("waiting", "open")}
        assert tasks == waiting or any(graph.stopped for graph in now.graphs)
    requests = {(sent.pending.name, sent.pending.attempt) for change in changes for sent in change.all(RequestSent)}
    details = [step_of(changes, step) for step in range(1, changes[-1].state.step + 1)]
    parts = [part.item for detail in details for part in detail.parts if part.item.kind in ("attempt", "wait")]
    assert {(item.name, item.attempt) for item in parts} >= requests, "one that waits to be tried again is told too"
    ends = {item.id: item.ended_in or len(changes) for item in view.items}
    for item in view.items:
        assert item.parent is None or ":attempt:" not in item.id or ends[item.id] <= ends[item.parent]


def check_spans(commits: list[Commit], changes: list[Commit], seen: int) -> None:
    """Spans of a prefix are part of the trace, which is one tree with every reply and attempt."""
    entries = [change.entry for change in changes]
    begun, whole = spans_since_rest(entries[:seen], since=EVER), spans_since_rest(entries, since=EVER)
    assert [span for span in begun if span not in whole] == []
    known = {span.span_id: span for span in whole}
    assert len(known) == len(whole), "two spans have one id"
    ended = commits[-1].state
    if ended.final:
        assert [span.name for span in whole if span.parent_id not in known] == ["invoke_agent agentic-loop"]
        assert [span.name for span in whole if not _is_within(known, span)] == []
        replies = [span for span in whole if "gen_ai.response.model" in span.attributes]
        assert len(replies) == sum(change.entry.kind == ModelReplied.__name__ for change in changes)
        tried = [s.attributes for s in whole if s.name.startswith("attempt")]
        named = ("agentic.step", "agentic.task", "agentic.round", "agentic.attempt")
        sent = [fact.pending for change in changes for fact in change.all(RequestSent)]
        names = {(one.step, one.task or None, one.round or None, one.attempt) for one in sent}
        assert {tuple(map(one.get, named)) for one in tried} == names
        steps = {span.attributes["agentic.step"] for span in whole if span.name.startswith("execute_tool")}
        assert len(steps) == ended.step
        assert sum("agentic.state" in span.attributes for span in whole) == 1 + ended.reopened


def _is_within(known: dict[str, Span], span: Span) -> bool:
    """The span of a reopened run begins after its parent."""
    above = known.get(span.parent_id or "", span)
    return above.started_at <= span.started_at and (span.ended_at <= above.ended_at or span.name.startswith("invoke"))


@pytest.mark.parametrize("course", [name for name in PLAYED if name not in ("retries", "parent")])
def test_the_lines_add_up_to_what_the_run_spent(course: str) -> None:
    """Except for unknown prices, and the spending of children."""
    story = PLAYED[course]()
    spent, counted = story.state.spent, Counter[str]()
    for line in map(json.loads, pages_of(entries_of(story))["trace.jsonl"].splitlines()):
        counted += Counter({name: count for name, count in (line["usage"] or {}).items() if name != "model"})
        counted["cost"] += line["cost_usd"] or 0
    assert counted["input_tokens"] + counted["output_tokens"] == spent.tokens
    assert counted["cache_read_tokens"] == spent.cache_read_tokens
    assert counted["cost"] == pytest.approx(spent.cost_usd)
