"""Requests of a run to a person are answered on the page, bound to what was shown there. Texts of models and tools are
shown and never act; the agent decides on permissions."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_service.core.phases import Action, Framing, Plan
from agent_service.core.waiting import Status
from agent_service.views.workspace.rendering import write
from groundwork.service.errors import TryAgain
from tests.browser.home import at_home
from tests.core.script import Script, commits_of
from tests.http.house import House, secret
from tests.kit.browser import MISSING, needs_browser
from tests.kit.runs import accepted, replied, returned, run_id, started, whole_run
from tests.kit.waiting import until
from tests.projections.journals import worked_example
from tests.projections.people import (
    LETTER,
    QUESTION,
    a_run_in_doubt,
    a_run_that_asks,
    a_run_that_needs_approval,
)

expect = pytest.importorskip("playwright.async_api", reason=MISSING).expect
pytestmark = [pytest.mark.browser, needs_browser]

ACTING = '<img src=x onerror="document.title=1;alert(1)"><script>alert(2)</script>'
UNSEEN = "ann\u202e@example\u200b.org"
LONG = "All of it is read. " * 400 + "The last words."


async def test_a_run_that_is_kept_no_longer_says_so_and_by_which_rule(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (house, seen):
        run = await house.play(whole_run())
        await house.two_days_later(run)
        async with house.client() as client:
            assert (await client.post("/v1/prune", json={})).json()["runs"]
        await seen.page.goto(f"/#/runs/{run}")
        await expect(seen.page.get_by_role("heading", name="Kept no longer")).to_be_visible()
        await expect(seen.page.get_by_role("alert")).to_contain_text("went at")
        await expect(seen.page.get_by_role("alert")).to_contain_text("agent.keep_runs.done_days: 1")
        await expect(seen.page.get_by_role("link", name="All runs")).to_be_visible()


async def shown(house: House, page: Any, script: Script) -> str:
    run = await house.play(commits_of(script))
    await page.goto(f"/#/runs/{run}")
    await page.get_by_role("heading", level=1).wait_for()
    return run


async def pressed(page: Any, button: str, told: str = "", then: str = "") -> None:
    await page.get_by_role("main").get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    if told:
        await dialog.get_by_role("textbox").first.fill(told)
    await dialog.get_by_role("button", name=then or button, exact=True).click()
    await expect(dialog).to_have_count(0)


async def test_what_is_approved_is_shown_in_full_and_carried_out(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (house, seen):
        run = await shown(house, seen.page, a_run_that_needs_approval(run_id(1), to=UNSEEN, text=LONG))
        asked = seen.page.get_by_role("region", name="What to know")
        await expect(asked).to_contain_text("post handle")
        await expect(asked).to_contain_text("ann⟨U+202E⟩@example⟨U+200B⟩.org")
        await expect(asked).to_contain_text("The last words.")
        await expect(asked).to_contain_text("Untrusted content is in this run: the request itself")
        await pressed(seen.page, "Approve", then="Approve it")
        await until(lambda: _is(house, run, Status.RUNNING))
        (ruling,) = (await house.state(run)).rulings
        assert (ruling.verdict, ruling.by.startswith("token admin")) == ("approved", True)
        await expect(seen.page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
        assert (seen.complaints, seen.foreign) == ([], [])


async def test_nothing_that_is_asked_acts_in_the_browser_or_reaches_over_its_edge(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (house, seen):
        await seen.page.set_viewport_size({"width": 360, "height": 640})
        run = await shown(house, seen.page, a_run_that_needs_approval(run_id(1), to=ACTING, **{ACTING: "x" * 400}))
        for place in (f"/#/runs/{run}", "/#/inbox"):
            await seen.page.goto(place)
            await expect(seen.page.get_by_role("main")).to_contain_text("onerror")
            assert await seen.page.evaluate("document.scrollingElement.scrollWidth") <= 360, place
        assert (seen.complaints, seen.foreign) == ([], [])


async def test_a_question_is_answered_with_one_of_its_choices(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (house, seen):
        run = await shown(house, seen.page, a_run_that_asks(run_id(1)))
        asked = seen.page.get_by_role("region", name="What to know")
        for words in (QUESTION.question, QUESTION.tried, QUESTION.would_change):
            await expect(asked).to_contain_text(words)
        await pressed(seen.page, "cellar", then="Answer")
        await until(lambda: _is(house, run, Status.RUNNING))
        assert (await house.state(run)).messages == ("cellar",)


@pytest.mark.parametrize(
    ("button", "outcome"), [("It ran", "ok"), ("It did not run", "error"), ("Let it look", "error")]
)
async def test_a_write_in_doubt_is_resolved_and_its_run_goes_on(tmp_path: Path, button: str, outcome: str) -> None:
    async with at_home(tmp_path) as (house, seen):
        run = await shown(house, seen.page, a_run_in_doubt(run_id(1)))
        await pressed(seen.page, button, "I looked in the mailbox")
        await until(lambda: _is(house, run, Status.RUNNING))
        (record,) = (await house.state(run)).completed
        assert record.status == outcome
        await expect(seen.page.get_by_role("main").get_by_text("Running", exact=True)).to_be_visible()


async def test_a_run_is_started_again_with_its_goal_its_context_and_what_a_person_found(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (house, seen):
        first = await shown(house, seen.page, a_run_in_doubt(run_id(7)))
        await seen.page.goto(f"/#/new?again={first}")
        await seen.page.get_by_label("Was step 1").select_option("It was done")
        await seen.page.get_by_role("button", name="Start the run").click()
        await seen.page.get_by_role("heading", name="tell ann that the page is up").wait_for()
        brief = (await house.state(seen.page.url.rpartition("/")[2])).brief
        assert brief.context == {"after": first, "step_1": "was done"}


async def test_each_dead_letter_shows_its_own_message_and_a_page_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (house, seen):
        house.letters.letters = {seq: replace(LETTER, id=seq, body=b"message %d" % seq) for seq in (5, 9)}
        await seen.page.goto("/#/inbox")
        await seen.page.get_by_text("2 messages that could not be handled").click()
        for _ in range(2):
            await seen.page.get_by_role("button", name="Show the message").first.click()
        for message in ("message 5", "message 9"):
            await expect(seen.page.get_by_role("list", name="Dead letters")).to_contain_text(message)
        run = await house.play(commits_of(worked_example()))
        house.shelf.failure = TryAgain("the bus is away")
        await seen.page.goto(f"/#/runs/{run}/plan")
        await expect(seen.page.get_by_role("alert")).to_contain_text("the bus is away")


async def _is(house: House, run: str, status: Status) -> bool:
    return (await house.state(run)).status is status


MARKDOWN = f"""# Fine

[press](javascript:alert(3)) ![pixel](https://evil.example/p.png) <iframe src="https://evil.example"></iframe>
{ACTING} [data](data:text/html,<script>alert(4)</script>) [good](https://example.com/)
"""
SVG = '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(5)"><script>alert(6)</script></svg>'
PAGE = f"<!doctype html><title>x</title>{ACTING}"
NAMES = {"artifacts/notes.md": MARKDOWN, "artifacts/drawing.svg": SVG, "artifacts/page.html": PAGE}
PARTS = ("", "/plan", "/memory", "/decisions", "/files", "/journal")


async def test_nothing_that_a_model_or_a_tool_wrote_acts_in_the_browser(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (house, seen):
        run_id = await _hostile_run(house)
        for part in PARTS:
            await seen.page.goto(f"/#/runs/{run_id}{part}")
            await seen.page.get_by_role("heading", name=ACTING).wait_for()
        for name in NAMES:
            await seen.page.goto(f"/#/runs/{run_id}/files?file={name}")
            await expect(seen.page.locator(".preview")).to_contain_text("evil" if name.endswith(".md") else "alert(")
        await seen.page.goto(f"/#/runs/{run_id}?step=1")
        await expect(seen.page.get_by_role("dialog")).to_contain_text("onerror")
        links = await seen.page.evaluate("[...document.links].map((link) => link.protocol)")
        assert set(links) <= {"http:", "https:"}
        assert await seen.page.locator("main iframe, main script, main img").count() == 0
        assert (seen.complaints, seen.foreign) == ([], [])


async def test_a_token_is_asked_for_once_and_kept_nowhere(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (house, seen):
        run_id = await house.play(whole_run())
        await seen.page.goto(f"/#/runs/{run_id}")
        await seen.page.get_by_role("heading", name="Find the answer.").wait_for()
        kept = await seen.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
        assert secret("admin") not in kept
        await seen.page.reload()
        await expect(seen.page.get_by_role("textbox", name="Token")).to_be_visible()


async def test_who_may_only_read_is_offered_nothing_else(tmp_path: Path) -> None:
    async with at_home(tmp_path, "reader") as (house, seen):
        run_id = await house.play([accepted()])
        await seen.page.goto(f"/#/runs/{run_id}")
        await expect(seen.page.get_by_role("button", name="Cancel")).to_be_disabled()


async def _hostile_run(house: House) -> str:
    commits = [accepted(goal=ACTING)]
    commits.append(started(commits[-1]))
    framing = Framing(goal_statement=ACTING, definition_of_done=(ACTING, MARKDOWN[:400], SVG), constraints=(MARKDOWN,))
    commits.append(replied(commits[-1], framing))
    action = Action(tool="search", command="query", arguments={"text": ACTING})
    commits.append(replied(commits[-1], Plan(action=action, rationale=MARKDOWN, expected_outcome=SVG, risk=ACTING)))
    commits.append(returned(commits[-1], summary=ACTING, artifacts=[_artifact(*item) for item in NAMES.items()]))
    house.shelf.contents.update({name: text.encode() for name, text in NAMES.items()})
    run_id = await house.play(commits)
    await write(run_id, house.store, house.workspace, house.shelf)
    return run_id


def _artifact(path: str, text: str) -> dict[str, Any]:
    content = text.encode()
    digest = hashlib.sha256(content).hexdigest()
    return {"path": path, "content_type": "text/plain", "size": len(content), "sha256": digest}
