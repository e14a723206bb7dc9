"""What the API shows of runs and entries."""

import json

import pytest

from agent_service.core.waiting import Status
from agent_service.run.lines import RunLine
from agent_service.run.moments import retell
from agent_service.telling.answers.entries import JournalReader, entry_view, entry_views
from agent_service.telling.answers.runs import line_view, run_view
from agent_service.telling.heard import Heard
from agent_service.telling.pages.trail import trail
from agent_service.telling.sayings import say
from agent_service.trust.identity import trace_id
from tests.core.cues import (
    FETCH,
    RUN_ID,
    a_framing_run,
    a_waiting_run,
    frames,
    plans,
    queued,
    returns,
    started,
)
from tests.core.script import NOON
from tests.projections.fakes import Journals
from tests.projections.journals import MODEL, commits_of, entries_of, worked_example


def test_a_finished_run_is_shown_with_its_steps_its_items_and_its_cost() -> None:
    script = worked_example()
    shown = json.loads(run_view(script.state, Heard(entries_of(script))).model_dump_json(by_alias=True))
    assert shown["run_id"] == RUN_ID
    assert (shown["state"], shown["class"], shown["wake_id"]) == ("done", "completed", "wake-1")
    assert shown["outcome"] == "Two paragraph critique generated in artifacts/critique.md"
    assert shown["accepted_at"] == "2026-11-21T12:00:00Z"
    assert (shown["started_at"], shown["ended_at"]) == ("2026-11-21T12:00:02Z", "2026-11-21T12:00:08Z")
    assert shown["steps"] == [
        {
            "step": number,
            "tool": tool,
            "command": "handle",
            "attempt": 1,
            "status": "ok",
            "summary": summary,
            "error": None,
            "execution": None,
            "tasks": [],
            "child_run_id": None,
        }
        for number, tool, summary in ((1, "fetch", "Matt Joyce"), (2, "text-report", "wrote 2 paragraphs"))
    ]
    assert [item["done"] for item in shown["definition_of_done"]] == [True, True, True]
    assert shown["usage"] == {
        "calls": 4,
        "input_tokens": 3200,
        "output_tokens": 480,
        "tokens": 3680,
        "cost_usd": 0.0168,
        "cache_read_tokens": 0,
        "lost_calls": 0,
        "lost_tokens": 0,
        "lost_cost_usd": 0.0,
    }
    assert shown["budget"]["max_steps"] == 10
    assert shown["artifacts"] == ["artifacts/fetch-01.html", "artifacts/critique.md"]
    assert shown["models"] == [MODEL]
    assert (shown["pending"], shown["asking"], shown["trace_url"]) == (None, None, None)


RAN = {"job_id": "8f3c", "attempts": 2, "last_error": "upstream says 503"}


def test_what_an_executor_tells_of_a_call_is_shown_wherever_the_step_is() -> None:
    script = a_waiting_run() >> returns(output={"summary": "saved"} | RAN)
    (step,) = run_view(script.state, Heard(entries_of(script))).steps
    assert step.execution is not None
    assert step.execution.model_dump(exclude_none=True) == RAN
    told = "job 8f3c, run 2 times, it failed before: upstream says 503"
    assert f"step 1: fetch ok ({told}): saved" in say(list(retell(entries_of(script)))[-1])
    written = trail(entries_of(script))
    assert json.loads(written["trace.jsonl"].splitlines()[-1])["execution"] == RAN
    assert f"As its executor tells: {told}." in written["decisions.md"]


@pytest.mark.parametrize(("there", "present"), [(None, None), ({"hands"}, True), ({"others"}, False)])
def test_of_a_pending_step_it_is_shown_who_was_asked_since_when_until_when_and_whether_they_are_there(
    there: set[str] | None, present: bool | None
) -> None:
    offered = FETCH.model_copy(update={"executor": "hands"})
    run = (queued() >> started((offered,)) >> frames() >> plans()).state
    pending = run_view(run, present=None if there is None else frozenset(there)).pending
    assert pending is not None
    assert run.pending is not None
    assert (pending.executor, pending.route, pending.present) == ("hands", "jina-reader", present)
    assert (pending.requested_at, pending.deadline_at) == (run.pending.requested_at, run.pending.deadline_at)


def test_the_model_call_that_is_waited_for_is_shown() -> None:
    view = run_view(a_framing_run().state)
    assert view.asking is not None
    assert (view.asking.call, view.asking.phase, view.asking.retry_at) == (1, "frame", None)
    assert view.steps == ()


def test_a_trace_url_holds_the_bits_of_the_run_id() -> None:
    view = run_view(a_waiting_run().state, trace_url="http://jaeger/trace/{trace_id}?x={y}")
    assert view.trace_id == trace_id(RUN_ID)
    assert view.trace_url == f"http://jaeger/trace/{trace_id(RUN_ID)}?x={{y}}"


def test_a_line_of_a_list_names_its_status() -> None:
    line = RunLine(
        run_id=RUN_ID, wake_id="w", status=Status.DONE, goal="g", summary="s", accepted_at=NOON, updated_at=NOON
    )
    assert json.loads(line_view(line).model_dump_json())["status"] == "done"


def test_an_entry_is_shown_with_its_event_its_hash_and_the_run_after_it() -> None:
    entries = entries_of(worked_example())
    views = list(entry_views(entries))
    assert [view.hash for view in views] == [entry.hash for entry in entries]
    assert [view.status for view in views] == ["queued", *["running"] * 6, "done"]
    assert [view.pending_step for view in views] == [None, None, None, 1, None, 2, None, None]
    assert views[4].event["result"]["result"]["excerpt"] == "Matt Joyce"


@pytest.mark.parametrize("after", range(9))
async def test_entries_after_a_number_are_the_rest_wherever_readers_were_before(after: int) -> None:
    entries = entries_of(worked_example())
    reader = JournalReader(Journals(entries))
    rest = list(entry_views(entries))[after:]
    for _ in range(2):
        assert list(map(entry_view, await reader.moments(RUN_ID, after, 100))) == rest
        assert list(map(entry_view, await reader.moments(RUN_ID, after, 2))) == rest[:2]
        await reader.moments(RUN_ID, 0, 6)


async def test_what_was_read_of_a_journal_is_not_read_again() -> None:
    commits = commits_of(worked_example())
    journals = Journals([commit.entry for commit in commits])
    reader = JournalReader(journals)
    await reader.moments(RUN_ID, 0, 6)
    assert (await reader.moments(RUN_ID, 6, 1))[0].after == commits[6].state
    heard = (await reader.heard(RUN_ID), await reader.heard(RUN_ID))
    assert journals.stretches == [(0, 6), (6, 1), (0, None), (8, None)]
    assert tuple(heard[0].models) == (MODEL,)


PLANNED = (
    f"planned: fetch handle: nothing can be said about a page unseen (by {MODEL}); "
    "sent step 1 (fetch handle), attempt 1, answer due by 2026-11-21 12:04:44Z"
)


def test_each_kind_of_entry_is_said_in_one_line() -> None:
    assert [view.summary for view in entry_views(entries_of(worked_example()))][:5] == [
        "accepted: fetch web http://mattjoyce.ai and produce a 2 para critique",
        "started with 2 tools: fetch, text-report; asked the model to frame (call 1)",
        f"framed: A two-paragraph critique of mattjoyce.ai exists. (by {MODEL}); asked the model to plan (call 2)",
        PLANNED,
        "step 1: fetch ok: Matt Joyce; asked the model to reflect (call 3)",
    ]


def test_moments_say_what_was_sent_and_asked() -> None:
    moments = list(retell(entries_of(worked_example())))
    assert [bool(moment.sent) for moment in moments] == [False, False, False, True, False, True, False, False]
    assert [bool(moment.asked) for moment in moments] == [False, True, True, False, True, False, True, False]
    assert [moment.ended for moment in moments] == [False] * 7 + [True]
