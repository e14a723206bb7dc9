"""The trail of a run, read like a notebook: what each page says at each point of a story."""

import re
from dataclasses import replace

import pytest

from agent_service.core.phases import Ask, Met, Unmet
from agent_service.telling.pages.trail import trail
from tests.core.cues import (
    PRICE,
    a_paused_run,
    a_proving_run,
    a_reflecting_run,
    claims,
    plan,
    reflection,
    replies,
    returns,
)
from tests.core.script import Script
from tests.projections.journals import GOAL, entries_of, worked_example


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


def test_a_journal_without_entries_has_no_trail() -> None:
    with pytest.raises(ValueError, match="at least one entry"):
        trail([])


def test_context_shows_the_goal_and_the_context_as_given() -> None:
    text = page(worked_example(), "context.md")
    assert section(text, "Goal, as given") == f"```text\n{GOAL}\n```"
    assert section(text, "Context, as given") == '```json\n{\n  "tone": "constructive",\n  "max_steps": 6\n}\n```'
    assert "by the wake API" in text


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


def test_skills_shows_each_command_with_its_tier_and_its_fields_required_ones_first() -> None:
    text = page(worked_example(), "skills.md")
    fetch, report = section(text, "`fetch`"), section(text, "`text-report`")
    assert fetch.index("- `url` (string, required): Where the page is.") < fetch.index("- `depth` (integer, optional)")
    assert "Tier: read" in fetch
    assert "Tier: write, changes something outside (idempotent: may be repeated)" in report
    assert "route `jina-reader`" in fetch


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


def test_the_diary_of_a_run_that_stopped_begins_with_why_and_what_to_do_now() -> None:
    told = opening(page(a_paused_run(), "decisions.md"))
    assert "**Paused** (`overloaded`), waiting for a person: 529" in told
    assert "agentic signal" in told
    assert "**Outcome:** " in opening(page(worked_example(), "decisions.md"))


# What to do now comes first, and nothing is said twice or lost


@pytest.mark.parametrize("name", ["memory.md", "plan.md", "decisions.md"])
def test_a_page_of_a_run_that_asks_begins_with_the_question(name: str) -> None:
    ask = Ask(question="Which of the two?", choices=("the red one", "the blue one"), tried="a look", would_change="all")
    text = opening(page(a_reflecting_run() >> replies(reflection("continue"), plan=ask), name))
    assert text.index("waiting for a person's answer") < text.index("**The question:** Which of the two?")
    assert "- the red one\n- the blue one\n\nWhat was tried: a look\n\nWhat an answer would change: all" in text
    assert "Why it is asked: the model asks; never type passwords or keys here" in text
    assert "It waits until 2026-11-28 12:00:00Z." in text


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
