"""What may run, what is refused and as what, and what follows from a call whose end nobody saw."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ductile_gateway.calls.call import Answer, Intent, JobFacts, NeverStarted, ToolOutcome, Unknown, Verdict, failed
from ductile_gateway.calls.policy import (
    AlreadyAnswered,
    Conflict,
    Refuse,
    Resume,
    Run,
    RunAgain,
    admit,
    after_reruns,
    after_resume,
    after_run,
    recall,
)
from ductile_gateway.calls.results import answer_to
from schemas.catalog import ToolOffer
from schemas.events import RESERVED_KEYS
from tests.gateway.parts import FETCH, NOON, a_request, asked_for

SECOND = timedelta(seconds=1)
DONE = ToolOutcome("ok", text="done")


def admitted(request: Any = None, *, route: str = "jina-reader", offer: ToolOffer | None = FETCH) -> Run | Refuse:
    return admit(asked_for(request, route), offer, flaw=None, now=NOON)


def an_intent(command: str = "handle") -> Intent:
    run = admitted(a_request(command))
    assert isinstance(run, Run)
    return run.intent


def an_answer() -> Answer:
    return answer_to(asked_for(), DONE, (), at=NOON)


def error_class(admission: Run | Refuse) -> str | None:
    assert isinstance(admission, Refuse)
    return admission.outcome.error_class


def test_a_call_on_offer_runs_until_the_time_of_its_tool_is_over() -> None:
    assert an_intent().deadline_at == NOON + 60 * SECOND


def test_the_deadline_of_the_request_ends_a_call_earlier_and_never_later() -> None:
    for deadline, ends in ((10, 10), (3600, 60)):
        run = admitted(a_request(deadline_at=NOON + deadline * SECOND))
        assert isinstance(run, Run)
        assert run.intent.deadline_at == NOON + ends * SECOND


@pytest.mark.parametrize(("command", "may"), [("handle", True), ("tag", True), ("save", False)])
def test_reads_and_idempotent_commands_may_be_repeated_and_other_writes_may_not(command: str, may: bool) -> None:
    assert an_intent(command).may_repeat is may


@pytest.mark.parametrize(
    ("request_", "route", "offer"),
    [
        (a_request(), "jina-reader", None),
        (a_request(), "other-route", FETCH),
        (a_request("poll"), "jina-reader", FETCH),
        (a_request("handle2"), "jina-reader", FETCH),
        (a_request(), "agentic-wake", FETCH.model_copy(update={"route": "agentic-wake"})),
        (a_request(), "agentic-loop", FETCH.model_copy(update={"route": "agentic-loop"})),
        (a_request(), "ductile-gateway", FETCH.model_copy(update={"route": "ductile-gateway"})),
    ],
    ids=["unknown tool", "another route", "command not on offer", "twin of a command", "wake", "loop", "ourselves"],
)
def test_what_is_not_on_offer_is_not_allowed_and_not_to_be_tried_again(
    request_: Any, route: str, offer: ToolOffer | None
) -> None:
    admission = admitted(request_, route=route, offer=offer)
    assert error_class(admission) == "not_allowed"
    assert isinstance(admission, Refuse)
    assert not admission.outcome.retryable


def test_arguments_that_do_not_fit_the_schema_are_refused_with_what_is_wrong() -> None:
    admission = admit(asked_for(), FETCH, flaw="url: 5 is not of type string", now=NOON)
    assert error_class(admission) == "invalid_arguments"
    assert isinstance(admission, Refuse)
    assert "url: 5 is not of type string" in (admission.outcome.message or "")


@pytest.mark.parametrize("name", [*sorted(RESERVED_KEYS), "Run_ID", "TOOL", " step", "attempt ", "\uff52un_id"])
def test_no_argument_may_have_a_reserved_name_or_look_like_one(name: str) -> None:
    assert error_class(admitted(a_request(payload={"url": "x", name: "other"}))) == "invalid_arguments"


def test_a_reserved_name_deeper_in_the_arguments_is_harmless() -> None:
    assert isinstance(admitted(a_request(payload={"url": "x", "filter": {"run_id": "other", "step": [1]}})), Run)


@pytest.mark.parametrize(
    "path",
    [
        "../artifacts/a.md",
        "artifacts/../a.md",
        "artifacts/..",
        "artifacts/",
        "artifacts",
        "/artifacts/a.md",
        "/etc/passwd",
        "artifacts//a.md",
        "artifacts/a/b.md",
        "run_02/artifacts/a.md",
        "artifacts/.hidden",
        "artifacts/-rf",
        "artifacts/a\n.md",
        "artifacts/ä.md",
        "artifacts/" + "a" * 101,
        "a.md",
        "",
        7,
        ["artifacts/a.md"],
    ],
)
def test_an_artifact_argument_that_leads_out_of_the_run_is_refused(path: Any) -> None:
    assert error_class(admitted(a_request("read", {"document": path}))) == "invalid_arguments"


@pytest.mark.parametrize("payload", [{"document": "artifacts/fetch-01.html"}, {"document": None}, {}])
def test_an_artifact_argument_may_name_an_artifact_of_the_run_or_be_left_out(payload: dict[str, Any]) -> None:
    assert isinstance(admitted(a_request("read", payload)), Run)


@pytest.mark.parametrize(("age", "class_"), [(-1, None), (0, "expired"), (1, "expired")])
def test_a_request_is_expired_from_its_deadline_on(age: int, class_: str | None) -> None:
    admission = admitted(a_request(deadline_at=NOON - age * SECOND))
    assert (error_class(admission) if isinstance(admission, Refuse) else None) == class_


def test_an_expired_request_may_be_tried_again_because_it_is_known_not_to_have_run() -> None:
    admission = admitted(a_request("save", deadline_at=NOON))
    assert isinstance(admission, Refuse)
    assert admission.outcome.retryable


def test_a_request_that_was_answered_is_answered_again() -> None:
    assert recall(asked_for(), an_answer()) == AlreadyAnswered(an_answer())


def test_a_request_that_was_begun_is_looked_for() -> None:
    intent = an_intent("save")
    assert recall(intent.asked, intent) == Resume(intent)


@pytest.mark.parametrize("past", [an_answer(), an_intent()], ids=["answered", "begun"])
def test_another_request_under_a_key_that_is_taken_is_a_conflict(past: Answer | Intent) -> None:
    assert recall(asked_for(a_request(payload={"url": "http://other.example"})), past) == Conflict()


UNKNOWN = Unknown("it was started, and nobody saw its end")
LATE = failed("timeout", "it did not answer in time", retryable=True)
GARBLED = failed("bad_output", "it wrote no response", retryable=True)
TOLD = failed("tool_error", "no such page", retryable=False)


@pytest.mark.parametrize(
    ("command", "verdict", "class_", "retryable"),
    [
        ("handle", TOLD, "tool_error", False),
        ("save", TOLD, "tool_error", False),
        ("handle", LATE, "timeout", True),
        ("tag", LATE, "timeout", True),
        ("save", LATE, "in_doubt", False),
        ("handle", GARBLED, "bad_output", True),
        ("save", GARBLED, "in_doubt", False),
        ("handle", UNKNOWN, "transient", True),
        ("tag", UNKNOWN, "transient", True),
        ("save", UNKNOWN, "in_doubt", False),
        ("handle", NeverStarted(), "transient", True),
        ("save", NeverStarted(), "transient", True),
    ],
)
def test_a_write_whose_outcome_nobody_knows_is_in_doubt(
    command: str, verdict: Verdict, class_: str, retryable: bool
) -> None:
    outcome = after_run(verdict, an_intent(command))
    assert (outcome.error_class, outcome.retryable) == (class_, retryable)


def test_a_call_in_doubt_says_what_a_person_has_to_look_for() -> None:
    message = after_run(UNKNOWN, an_intent("save")).message or ""
    assert all(part in message for part in ("fetch save", UNKNOWN.reason, asked_for(a_request("save")).key))


@pytest.mark.parametrize(
    ("command", "verdict", "again"),
    [
        ("handle", NeverStarted(), True),
        ("save", NeverStarted(), True),
        ("handle", UNKNOWN, True),
        ("tag", UNKNOWN, True),
        ("save", UNKNOWN, False),
        ("handle", DONE, False),
        ("handle", LATE, False),
    ],
)
def test_a_lost_call_runs_again_only_if_it_never_ran_or_may_be_repeated(
    command: str, verdict: Verdict, again: bool
) -> None:
    assert (after_resume(verdict, an_intent(command)) == RunAgain()) is again


def rerun(status: str = "ok", **changed: Any) -> ToolOutcome:
    made = ToolOutcome("ok", text="done") if status == "ok" else failed("tool_error", "no", retryable=True)
    return replace(made, job=JobFacts("job-7", attempts=2), **changed)


def test_a_write_that_was_run_more_than_once_says_so_and_stays_what_it_was() -> None:
    told = after_reruns(rerun(), an_intent("save"), escalates=False)
    assert (told.status, "Ductile ran it 2 times" in told.text) == ("ok", True)
    told = after_reruns(rerun("error"), an_intent("save"), escalates=False)
    assert (told.error_class, "Ductile ran it 2 times" in str(told.message)) == ("tool_error", True)


@pytest.mark.parametrize("status", ["ok", "error"])
def test_a_write_that_was_run_more_than_once_is_in_doubt_where_that_escalates_with_its_job_named(status: str) -> None:
    found = after_reruns(rerun(status), an_intent("save"), escalates=True)
    assert (found.error_class, found.retryable, found.job.job_id) == ("in_doubt", False, "job-7")
    assert "ductile job inspect job-7" in str(found.message)


def test_of_what_may_be_repeated_it_does_not_matter_how_often_it_was_run() -> None:
    assert after_reruns(rerun(), an_intent("tag"), escalates=True) == rerun()


def test_in_doubt_names_the_jobs_that_may_be_the_call() -> None:
    found = after_run(Unknown("lost", jobs=("a", "b")), an_intent("save"))
    assert "one of the jobs a, b of Ductile" in str(found.message)
    found = after_run(replace(failed("timeout", "late", retryable=True), job=JobFacts("a")), an_intent("save"))
    assert (found.error_class, found.job.job_id) == ("in_doubt", "a")
