"""A step and a model call in full: nothing is cut, nothing steers the terminal."""

from typing import Any

from agent_service.cli.runs import views

HOSTILE = "\x1b]0;owned\x07\u202e"


def a_step(*attempts: dict[str, Any], **changed: Any) -> dict[str, Any]:
    told = {"run_id": "run_1", "step": 2, "tool": "fetch", "command": "handle", "route": "jina", "executor": None}
    reasons = {"arguments": {"url": "x" * 5000}, "expected": "a page", "risk": "", "rationale": "to see"}
    return told | reasons | {"attempts": list(attempts), "tasks": [], "child_run_id": None} | changed


def an_attempt(**changed: Any) -> dict[str, Any]:
    times = {"requested_at": "2026-11-21T12:00:00Z", "deadline_at": "2026-11-21T12:01:00Z", "completed_at": None}
    return {"attempt": 1, **times, "status": "open", "result": None, "error": None, "execution": None} | changed


def a_call(**changed: Any) -> dict[str, Any]:
    told = {"run_id": "run_1", "call": 3, "phase": "reflect", "with_plan": True, "model": None, "reply": None}
    times = {"asked_at": "2026-11-21T12:00:00Z", "replied_at": None, "usage": None, "provenance": None}
    said = {"prompt": [{"role": "user", "text": "y" * 9000}], "prompt_note": "", "outcome": "there is no reply yet"}
    return told | times | said | changed


def test_a_step_says_why_of_whom_and_with_what_in_full() -> None:
    text = views.step(a_step(an_attempt()))
    assert "step 2 of run_1: fetch handle" in text
    assert "whoever takes them (route jina)" in text
    assert "x" * 5000 in text
    assert "attempt 1: ▶ open, asked 2026-11-21 12:00:00 UTC, to be answered by 2026-11-21 12:01:00 UTC" in text
    assert "risk" not in text


def test_an_attempt_says_when_it_was_answered_and_what_came() -> None:
    error = {"class": "away", "message": "nobody there", "retryable": True}
    failed = an_attempt(status="error", completed_at="2026-11-21T12:00:04Z", error=error, execution="job 8f3c")
    answered = an_attempt(
        attempt=2, status="ok", completed_at="2026-11-21T12:00:09Z", result={"excerpt": "a\nb", "n": 1}
    )
    text = views.step(a_step(failed, answered))
    assert "✗ error, asked 2026-11-21 12:00:00 UTC, answered 2026-11-21 12:00:04 UTC (after 4.0 s), job 8f3c" in text
    assert "away: nobody there (may be tried again)" in text
    assert "excerpt:\n    a\n    b\nn: 1" in text


def test_a_call_says_all_that_was_told_and_that_there_is_no_reply_yet() -> None:
    text = views.call(a_call())
    assert "call 3 of run_1: reflect with the next plan" in text
    assert "── user\n" + "y" * 9000 in text
    assert "no reply" in text


def test_a_call_says_what_it_cost_and_what_came_of_it() -> None:
    usage = {"input_tokens": 1200, "output_tokens": 80, "cost_usd": None, "cache_read_tokens": 900}
    replied = a_call(usage=usage, replied_at="2026-11-21T12:00:02Z", reply={"decision": {"verdict": "done"}})
    text = views.call(replied)
    assert "1,200 tokens in (900 from the cache), 80 out, cost unknown" in text
    assert "(after 2.0 s)" in text
    assert '"verdict": "done"' in text


def test_nothing_hostile_steers_the_terminal() -> None:
    prompt = [{"role": "user", "text": HOSTILE}]
    text = views.call(a_call(prompt=prompt, outcome=HOSTILE)) + views.step(a_step(arguments={HOSTILE: HOSTILE}))
    assert not set(text) & set(HOSTILE[:1] + HOSTILE[-2:])
