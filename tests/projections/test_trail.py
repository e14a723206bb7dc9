"""The trail of a run, read like a notebook: what each page says at each point of a story."""

import re
from dataclasses import replace

import pytest

from agent_service.core.phases import Ask, Met, Plan, Reflection, Unmet, Unusable, Verdict, Wait
from agent_service.telling.entries import entry_views
from agent_service.telling.outputs import FILES
from agent_service.telling.pages.trail import trail
from tests.core.cues import (
    PROOF,
    a_paused_run,
    a_reflecting_run,
    a_retrying_run,
    a_waiting_run,
    cancel,
    due,
    errs,
    plan,
    queued,
    reflection,
    reflects,
    replies,
    returns,
    signal,
    unavailable,
    wake,
)
from tests.core.model_cues import reserves
from tests.core.script import Script
from tests.core.test_proof import PRICE, a_proving_run, claims
from tests.projections.journals import GOAL, MODEL, SCRIPTED, asked_for, entries_of, worked_example


def page(script: Script, name: str) -> str:
    return trail(entries_of(script))[name]


def section(text: str, heading: str) -> str:
    """What stands under a heading of the second level."""
    found = re.search(rf"^## {re.escape(heading)}.*?\n\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, f"no section {heading!r} in:\n{text}"
    return found[1].strip()


def opening(text: str) -> str:
    """What a page says before its first heading of the second level."""
    return text.split("\n## ")[0]


def up_to(script: Script, events: int) -> Script:
    """The story after its first `events` events."""
    shorter = Script()
    for moment in script.story[:events]:
        shorter = shorter >> moment.event
    return shorter


def test_a_trail_is_exactly_the_six_files() -> None:
    assert tuple(trail(entries_of(worked_example()))) == FILES


def test_a_journal_without_entries_has_no_trail() -> None:
    with pytest.raises(ValueError, match="at least one entry"):
        trail([])


def test_context_shows_the_goal_and_the_context_as_given() -> None:
    text = page(worked_example(), "context.md")
    assert section(text, "Goal, as given") == f"```text\n{GOAL}\n```"
    assert section(text, "Context, as given") == '```json\n{\n  "tone": "constructive",\n  "max_steps": 6\n}\n```'
    assert "by the wake API" in text


def test_the_longest_goal_is_shown_in_full() -> None:
    goal = "x" * 32_768
    context = {"background": "y" * 200_000}
    text = page(Script() >> asked_for(goal, **context), "context.md")
    assert goal in text
    assert context["background"] in text


def test_memory_ticks_what_is_proved_and_names_the_evidence() -> None:
    text = page(up_to(worked_example(), 6), "memory.md")
    assert section(text, "Definition of done (1 of 3)").splitlines() == [
        "- [x] d1: the page is fetched (evidence: `step:1`)",
        "- [ ] d2: the critique is written",
        "- [ ] d3: it has two paragraphs",
    ]
    assert section(text, "Learned facts") == "- the page has one heading"
    assert section(text, "Assumptions and unknowns") == "- the page is public"
    assert section(text, "Hypothesis") == "one fetch is enough"
    assert section(text, "Constraints").startswith("- be constructive\n")
    assert "**Running**, waiting for the result of step 2" in opening(text)


def test_the_trail_shows_what_each_item_needs_what_was_claimed_and_what_was_accepted() -> None:
    run = a_proving_run() >> claims(PRICE, Met(item="d2", evidence="step:1", quote="kept"), unmet=(Unmet(item="d3"),))
    framed, reflected = (section(page(run, "decisions.md"), entry) for entry in ("3.", "7."))
    assert "1. the price is known (shown by a value in a result of fetch)" in framed
    assert '- [x] d1 is met, by `step:1`, "the price is 12"' in reflected
    assert '- [ ] d2 is met, claimed, and not accepted, by `step:1`, "kept"' in reflected
    assert "- [ ] d3 is not met any more" in reflected
    assert "- Not accepted: item d2 is shown by an artifact of the run, and step:1 (fetch) is none" in reflected
    assert section(page(run, "memory.md"), "Definition of done (1 of 3)").splitlines() == [
        '- [x] d1: the price is known (evidence: `step:1`, "the price is 12")',
        "- [ ] d2: the report is kept (to be shown by an artifact of the run)",
        "- [ ] d3: somebody agreed (to be shown by what a person said)",
    ]


def test_memory_of_a_finished_run_says_how_it_ended_and_what_it_cost() -> None:
    text = page(worked_example(), "memory.md")
    assert opening(text).startswith(
        "# Memory\n\n**Ended: done** at 2026-11-21 12:00:08Z.\n\n"
        "**Outcome:** Two paragraph critique generated in artifacts/critique.md\n"
    )
    assert "4 model calls, 3200 tokens in and 480 out, 0.0168 USD" in section(text, "Status")


def test_memory_says_when_a_price_is_not_known() -> None:
    script = a_reflecting_run() >> replies(reflection("done", PROOF), cost=None)
    assert "price not known" in section(page(script, "memory.md"), "Status")


def test_memory_lists_the_artifacts() -> None:
    assert section(page(worked_example(), "memory.md"), "Artifacts").splitlines() == [
        "- `artifacts/fetch-01.html`, from step 1 (`text/html`, 32 bytes)",
        "- `artifacts/critique.md`, from step 2 (`text/plain`, 39 bytes)",
    ]


def test_skills_shows_each_command_with_its_tier_and_its_fields_required_ones_first() -> None:
    text = page(worked_example(), "skills.md")
    fetch, report = section(text, "`fetch`"), section(text, "`text-report`")
    assert fetch.index("- `url` (string, required): Where the page is.") < fetch.index("- `depth` (integer, optional)")
    assert "Tier: read" in fetch
    assert "Tier: write, changes something outside (idempotent: may be repeated)" in report
    assert "route `jina-reader`" in fetch


def test_skills_of_a_run_that_has_not_started_says_so() -> None:
    assert "Not frozen yet" in page(queued(), "skills.md")


WAITING = (
    "- [ ] 2. `text-report handle`: waiting for the result of step 2, `text-report handle`, attempt 1, "
    "asked of route `fabric` at 2026-11-21 12:00:06Z, due by 2026-11-21 12:05:16Z"
)


def test_the_plan_marks_finished_steps_and_names_one_next_action() -> None:
    text = page(up_to(worked_example(), 6), "plan.md")
    assert section(text, "Steps").splitlines() == [
        "- [x] 1. `fetch handle`, done: Matt Joyce",
        WAITING,
    ]
    action = section(text, "Next action")
    assert action.count("**Step ") == 1
    assert "**Step 2: `text-report handle`**, on route `fabric`." in action
    assert '"from": "artifacts/fetch-01.html"' in action
    assert "- Rationale: the page is known now" in action
    assert "- Expected outcome: two paragraphs" in action
    assert "- Risk: the text may be too long" in action
    assert section(text, "Outline").endswith("1. write the critique")


@pytest.mark.parametrize("events", range(1, 9))
def test_every_plan_has_one_section_for_the_next_action(events: int) -> None:
    text = page(up_to(worked_example(), events), "plan.md")
    assert text.count("## Next action") == 1
    assert section(text, "Next action").count("**Step ") == (1 if events in (4, 6) else 0)


def test_a_failed_step_is_not_ticked() -> None:
    script = a_waiting_run() >> errs("not_found")
    assert section(page(script, "plan.md"), "Steps") == "- [ ] 1. `fetch handle`, failed (`not_found`): it broke"


def test_a_step_under_way_when_the_run_was_cancelled_is_told_as_not_finished() -> None:
    script = a_waiting_run() >> cancel()
    assert "not finished when the run ended" in section(page(script, "plan.md"), "Steps")


def test_decisions_has_one_section_per_entry_in_order() -> None:
    headings = re.findall(r"^## (.*)$", page(worked_example(), "decisions.md"), re.MULTILINE)
    assert headings == [
        "1. Accepted · 2026-11-21 12:00:00Z (0.0 s)",
        "2. Started · 2026-11-21 12:00:02Z (2.0 s)",
        "3. Frame · 2026-11-21 12:00:03Z (1.0 s)",
        "4. Plan · 2026-11-21 12:00:04Z (1.0 s)",
        "5. Result of step 1, attempt 1 · 2026-11-21 12:00:05Z (1.0 s)",
        "6. Reflect and plan · 2026-11-21 12:00:06Z (1.0 s)",
        "7. Result of step 2, attempt 1 · 2026-11-21 12:00:07Z (1.0 s)",
        "8. Reflect · 2026-11-21 12:00:08Z (1.0 s)",
    ]


def newest(script: Script) -> str:
    """The last section of decisions.md."""
    return page(script, "decisions.md").split("\n## ")[-1]


def test_a_reply_names_its_model_and_its_cost() -> None:
    assert f"By {MODEL}, call 4: 800 tokens in, 120 out, 0.0042 USD." in newest(worked_example())


@pytest.mark.parametrize("name", ["memory.md", "plan.md", "decisions.md"])
def test_a_scripted_model_is_called_a_script_wherever_it_speaks(name: str) -> None:
    assert f"the script {SCRIPTED} (no language model)" in page(worked_example(model=SCRIPTED), name)
    assert "script" not in page(worked_example(model=MODEL), name)


def test_a_reframe_is_told_with_its_reason() -> None:
    told = newest(a_reflecting_run() >> reflects("reframe"))
    assert "**Reframe, because:** looked at the result" in told
    assert "asked the model to frame" in told


def test_a_refused_done_says_why_and_ticks_nothing() -> None:
    told = newest(a_reflecting_run() >> reflects("done", {"d1": "step:1", "d2": "step:77"}))
    assert "- [x] d1 is met, by `step:1`" in told
    assert "- [ ] d2 is met, claimed, and not accepted, by `step:77`" in told
    assert "**Refused** (`done_refused`)" in told
    assert "evidence 'step:77' for item d2 does not exist" in told


def test_an_unusable_reply_is_shown_with_what_came_and_the_next_try_is_counted() -> None:
    script = a_reflecting_run() >> replies(Unusable(reason="not JSON", raw="Sure! Here is"))
    assert "**No valid decision.** not JSON\n\n```text\nSure! Here is\n```" in newest(script)
    assert newest(script >> reflects("escalate")).startswith("7. Reflect (try 2)")


def test_a_plan_that_may_not_be_carried_out_is_refused_while_its_reflection_stands() -> None:
    told = newest(a_reflecting_run() >> replies(reflection("continue"), plan=plan("curl")))
    assert told.startswith("6. Reflect and plan")
    assert told.index("**Continue:**") < told.index("`curl handle`") < told.index("**Refused** (`invalid_decision`)")
    assert told.count("**Refused**") == 1


def test_a_plan_that_comes_with_an_ending_is_told_as_not_carried_out() -> None:
    script = a_reflecting_run() >> replies(reflection("done", PROOF), plan=plan())
    assert "Not carried out" in newest(script)


def test_a_retry_is_told_with_its_cause_and_its_time() -> None:
    script = a_retrying_run()
    assert "`upstream`, may be tried again" in newest(script)
    assert "attempt 2 follows at 2026-11-21 12:00:0" in newest(script)
    assert newest(script >> due).startswith("6. Retry of step 1, attempt 2")


def test_an_answer_that_never_came_is_told_as_such() -> None:
    told = newest(a_waiting_run() >> due)
    assert told.startswith("5. No result of step 1, attempt 1")
    assert "`timeout`, may be tried again" in told


def test_a_write_in_doubt_is_told_with_its_end() -> None:
    told = newest(a_waiting_run("post") >> due)
    assert "`in_doubt`, not to be tried again" in told
    assert "the run ended: escalated (in_doubt)" in told
    assert "*What to do now:* find out whether step 1 (post handle) was done" in told
    assert "agentic answer --look" in told


def test_the_diary_of_a_run_that_stopped_begins_with_why_and_what_to_do_now() -> None:
    told = opening(page(a_paused_run(), "decisions.md"))
    assert "**Paused** (`overloaded`), waiting for a person: 529" in told
    assert "agentic signal" in told
    assert "**Outcome:** " in opening(page(worked_example(), "decisions.md"))


def test_a_spent_budget_ends_the_diary_with_its_reason() -> None:
    script = a_reflecting_run(max_steps=1) >> replies(reflection("continue"), plan=plan())
    assert "the run ended: escalated (budget_steps): all 1 steps are used" in newest(script)
    assert "`budget_steps`" in opening(page(script, "memory.md"))


def test_a_pause_says_what_it_waits_for() -> None:
    script = a_paused_run()
    assert "the run pauses (overloaded): 529" in newest(script)
    assert "**Paused** (`overloaded`), waiting for a person: 529" in opening(page(script, "memory.md"))


def test_a_signal_is_told_with_its_words_and_the_limits_it_raised() -> None:
    told = newest(a_paused_run() >> signal("raise_budget", message="take your time", max_steps=15))
    assert told.startswith("7. Signal: raise_budget")
    assert "take your time" in told
    assert "- at most 15 steps" in told
    assert "the run goes on" in told


def test_what_people_said_stands_in_memory() -> None:
    script = a_waiting_run() >> signal("message", message="look at the footer")
    assert section(page(script, "memory.md"), "Said by people") == "- look at the footer"


def test_a_model_out_of_reach_is_told_with_the_next_try() -> None:
    told = newest(a_reflecting_run() >> unavailable("try_again", retry_after_s=5.0))
    assert told.startswith("6. No answer from the model")
    assert "the model is asked again at 2026-11-21 12:00:05Z" in told


def test_a_cancel_is_told_with_its_reason_and_a_late_result_changes_nothing() -> None:
    script = a_waiting_run() >> cancel("wrong page")
    assert "the run ended: cancelled (cancelled): wrong page" in newest(script)
    late = script >> returns()
    assert "came after the run's end, which it does not change" in newest(late)


def test_who_asked_is_told_where_the_journal_says_so() -> None:
    by = "token ops, os user ann"
    story = a_waiting_run() >> cancel("wrong page", by=by)
    assert f"Asked for by `{by}`." in newest(story)
    assert list(entry_views(entries_of(story)))[-1].summary.startswith(f"cancel (from {by}): wrong page")
    assert "Asked for by" not in newest(a_waiting_run() >> cancel("wrong page"))


def test_the_context_tells_who_asked_for_the_run() -> None:
    assert "by a message on the bus, from `bus`." in page(Script() >> replace(wake(), by="bus"), "context.md")
    assert "by a message on the bus." in page(Script() >> wake(), "context.md")


def test_a_result_that_nobody_asked_for_is_told_as_refused() -> None:
    told = newest(a_waiting_run() >> returns(tool="someone"))
    assert "is not what the run waited for" in told
    assert "protocol_violation" in told


def test_an_escalation_by_the_model_is_its_decision() -> None:
    told = newest(a_reflecting_run() >> reflects("escalate"))
    assert "**Escalate:** looked at the result" in told
    assert "**Refused**" not in told


def test_a_plan_of_a_reflection_is_attributed_once() -> None:
    script = a_reflecting_run() >> replies(
        Reflection(verdict=Verdict.CONTINUE, summary="on", outline=("one", "two")),
        plan=Plan(action=plan().action, rationale="because"),
    )
    told = newest(script)
    assert told.count("By ") == 1
    assert "The outline is now:\n\n1. one\n2. two" in told


# What to do now comes first, and nothing is said twice or lost


@pytest.mark.parametrize("name", ["memory.md", "plan.md", "decisions.md"])
def test_a_page_of_a_run_that_stopped_begins_with_why_and_with_what_to_do_now(name: str) -> None:
    text = page(a_paused_run(), name).split("\n\n")
    assert text[1] == "**Paused** (`overloaded`), waiting for a person: 529."
    assert text[2].startswith("*What to do now:* ")


@pytest.mark.parametrize("name", ["memory.md", "plan.md", "decisions.md"])
def test_a_page_of_a_run_that_asks_begins_with_the_question(name: str) -> None:
    ask = Ask(question="Which of the two?", choices=("the red one", "the blue one"), tried="a look", would_change="all")
    text = opening(page(a_reflecting_run() >> replies(reflection("continue"), plan=ask), name))
    assert text.index("waiting for a person's answer") < text.index("**The question:** Which of the two?")
    assert "- the red one\n- the blue one\n\nWhat was tried: a look\n\nWhat an answer would change: all" in text
    assert "Why it is asked: the model asks; never type passwords or keys here" in text
    assert "It waits until 2026-11-28 12:00:00Z." in text


def test_a_wait_is_told_with_its_end_and_its_reason() -> None:
    script = a_reflecting_run() >> replies(reflection("continue"), plan=Wait(why="the build runs", seconds=60.0))
    assert "waiting for the time until 2026-11-21 12:01:00Z: the build runs." in opening(page(script, "plan.md"))
    assert "**Wait** for 60 s: the build runs" in newest(script)


@pytest.mark.parametrize("reason", ["wrong page", "wrong page.", "wrong page!", "wrong page…"])
def test_no_sentence_has_two_ends(reason: str) -> None:
    for text in trail(entries_of(a_waiting_run() >> cancel(reason))).values():
        assert not re.search(r"[.!…]\.(?!\.)", text.replace("...", ""))


def test_a_step_that_is_tried_again_shows_what_went_wrong_with_it() -> None:
    (line,) = section(page(a_retrying_run(), "plan.md"), "Steps").splitlines()
    assert line.endswith(". Its last error (`upstream`): it broke")


def test_a_step_in_doubt_is_not_called_unfinished() -> None:
    (line,) = section(page(a_waiting_run("post") >> due, "plan.md"), "Steps").splitlines()
    assert line.startswith("- [ ] 1. `post handle`: not known whether it was done. Its last error (`in_doubt`): ")


def test_what_was_not_said_is_left_out() -> None:
    silent = Plan(action=plan().action)
    text = page(a_reflecting_run() >> replies(reflection("continue"), plan=silent), "plan.md")
    assert section(text, "Next action").endswith("- Tier: read, changes nothing outside and may be repeated")
    assert "Rationale" not in text


def test_a_plan_for_which_no_step_was_left_is_shown_as_kept() -> None:
    script = a_reflecting_run(max_steps=1, on_budget="pause") >> replies(reflection("continue"), plan=plan())
    assert section(page(script, "plan.md"), "Next action") == (
        "None yet: `fetch handle` is kept until there is a step for it."
    )


def test_a_call_that_a_crash_cut_off_is_told_as_lost() -> None:
    told = newest(a_reflecting_run() >> reserves(900, if_lost=(400, 0.01)) >> reserves(900))
    assert "**The reply to call 3 is lost.** A crash cut it off, and it is made again." in told
    assert "it counts as 400 tokens" in told


def test_a_call_that_was_given_up_is_told_as_lost() -> None:
    script = a_reflecting_run() >> reserves(900) >> cancel()
    assert "**The reply to call 3 is lost.** It was given up while it was being made." in newest(script)
    status = section(page(script, "memory.md"), "Status")
    assert "1 cut off without a reply (by a crash, a cancel or the deadline), which count as 900 tokens" in status


def test_memory_keeps_what_was_learned_by_an_escalation_in_the_place_of_a_plan() -> None:
    gives_up = replace(reflection("escalate"), facts=("the page needs a password (step:1)",))
    script = a_reflecting_run(fused=False) >> reflects("continue") >> replies(gives_up)
    assert section(page(script, "memory.md"), "Learned facts") == "- the page needs a password (step:1)"


@pytest.mark.parametrize(
    ("again", "source"),
    [
        ("The page is long.", ""),
        ("the page is  long (steps 1 and 2)", " (steps 1 and 2)"),
        ("the page is long (step:1)", ""),
    ],
)
def test_memory_says_a_fact_once_with_every_step_that_showed_it(again: str, source: str) -> None:
    first = replace(reflection("continue"), facts=("the page is long (step:1)",))
    script = a_reflecting_run() >> replies(first, plan=plan()) >> returns()
    script = script >> replies(replace(reflection("continue"), facts=(again, "the page is not long")), plan=plan())
    assert section(page(script, "memory.md"), "Learned facts").splitlines() == [
        f"- the page is long (step:1){source}",
        "- the page is not long",
    ]
