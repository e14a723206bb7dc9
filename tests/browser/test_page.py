"""The page as an operator uses it: live runs, actions on them, and the tasks and children of a run."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.home import at_home
from tests.cli.invoke import Dev
from tests.core.cues import child_of
from tests.core.script import commits_of
from tests.core.words import PARENT, run_at
from tests.kit.browser import MISSING, browsing, needs_browser, serious_flaws
from tests.kit.waiting import until
from tests.projections.courses import PLAYED
from tests.projections.journals import two_rounds

expect = pytest.importorskip("playwright.async_api", reason=MISSING).expect
pytestmark = [pytest.mark.browser, needs_browser]

PLACES = ("#/runs", "#/inbox", "#/usage", "#/new", "docs")


async def test_a_run_that_is_started_here_is_seen_to_its_end(page: Any) -> None:
    await page.get_by_role("link", name="New run").click()
    await page.get_by_label("Goal").fill("say it back")
    await page.get_by_role("button", name="Start the run").click()
    await expect(page.get_by_role("heading", name="say it back")).to_be_visible()
    await expect(page.get_by_role("main").get_by_text("Done", exact=True)).to_be_visible()
    await expect(page.get_by_label("Goal and budget")).to_contain_text("It is looked at.")
    await page.get_by_role("region", name="Timeline").get_by_text("echo").first.click()
    await expect(page.get_by_role("dialog")).to_contain_text("say it back")


async def test_a_run_that_goes_on_is_cancelled_with_a_reason(page: Any, dev: Dev) -> None:
    run_id = dev("wake", "--json", "stay for a while").document["run_id"]
    await page.goto(f"/#/runs/{run_id}")
    await page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Why").fill("it takes too long")
    await dialog.get_by_role("button", name="Cancel the run").click()
    await expect(page.get_by_role("main").get_by_text("Cancelled", exact=True)).to_be_visible()
    assert "it takes too long" in dev("show", "--json", run_id).document["reason"]


async def test_what_waits_for_a_person_is_in_the_inbox_until_it_is_dismissed(page: Any, dev: Dev) -> None:
    run_id = dev.run("escalate this, please")["run_id"]
    await page.get_by_role("link", name=re.compile("^Inbox")).click()
    card = page.get_by_role("listitem").filter(has=page.locator(f'a[href*="{run_id}"]'))
    await expect(card).to_contain_text("a person has to look")
    await card.get_by_role("button", name="Dismiss").click()
    await page.get_by_role("dialog").get_by_role("button", name="Dismiss").click()
    await expect(card).to_have_count(0)


async def test_everything_is_reached_by_keyboard_alone(page: Any, dev: Dev) -> None:
    run_id = dev.run("reached by keys")["run_id"]
    keys = page.keyboard
    await page.get_by_role("heading", name="Runs").wait_for()
    await keys.press("/")
    await keys.type("reached by keys")
    await expect(page.get_by_role("list", name="Runs").get_by_role("listitem")).to_have_count(1)
    await keys.press("Tab")
    await keys.press("Escape")
    await keys.press("j")
    await keys.press("Enter")
    await expect(page).to_have_url(re.compile(run_id))
    await page.get_by_role("heading", name="reached by keys").wait_for()
    await keys.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await keys.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await keys.press("i")
    await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()


async def test_everybody_sees_that_everything_is_stopped_and_can_resume_it(page: Any, dev: Dev) -> None:
    run_id = dev("wake", "--json", "stay for a while").document["run_id"]
    dev("stop-all", "--reason", "it mails everybody")
    try:
        await page.goto(f"/#/runs/{run_id}")
        await expect(page.get_by_label("What to know")).to_contain_text("it mails everybody")
        await page.reload()
        await expect(page.get_by_role("list", name="Health")).to_contain_text("it mails everybody")
        await page.get_by_role("main").get_by_role("button", name="Resume everything").click()
        await page.get_by_role("dialog").get_by_role("button", name="Resume everything").click()
        await expect(page.get_by_label("What to know")).to_have_count(0)
    finally:
        dev("go-on")
    dev("cancel", run_id)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nobody_is_kept_out(dev: Dev, scheme: str) -> None:
    run_id = dev.run("read by everybody")["run_id"]
    parts = ("", "/plan", "/memory", "/decisions", "/files", "/journal")
    # what the documentation may not do itself, axe has to: run scripts
    async with browsing(dev.url, color_scheme=scheme, bypass_csp=True) as seen:
        for place in (*PLACES, *(f"#/runs/{run_id}{part}" for part in parts)):
            await seen.page.goto(f"/{place}")
            await seen.page.locator("h1").first.wait_for()
            await until(lambda: seen.page.evaluate("!document.body.innerText.includes('Loading…')"))
            assert await serious_flaws(seen.page) == [], place
        assert (seen.complaints, seen.foreign) == ([], [])


async def test_a_child_stands_under_its_parent_in_the_list(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (house, seen):
        parent = run_at(PARENT)
        first, child = await house.play(commits_of(parent)), await house.play(commits_of(child_of(parent)))
        await seen.page.goto("/#/runs")
        lines = seen.page.get_by_role("list", name="Runs").get_by_role("listitem")
        await expect(lines).to_have_count(2)
        assert [await line.get_attribute("data-key") for line in await lines.all()] == [first, child]
        assert [await line.get_attribute("class") for line in await lines.all()] == [None, "inside"]


async def test_a_day_on_which_only_children_began_is_one_of_the_usage(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (house, seen):
        await house.play(commits_of(PLAYED["child"]()))
        await seen.page.goto("/#/usage")
        await expect(seen.page.get_by_role("region", name="Tools")).to_contain_text("fetch")


async def test_the_tasks_of_a_step_stand_beneath_it_and_are_told_in_full_behind_it(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (house, seen):
        run = await house.play(commits_of(two_rounds()))
        await seen.page.goto(f"/#/runs/{run}")
        tasks = seen.page.locator(".item-task")
        await expect(tasks).to_have_count(8)
        inset = [await task.evaluate("task => task.style.getPropertyValue('--depth')") for task in await tasks.all()]
        assert inset == ["1", "2", "2", "1", "1", "1", "1", "1"]
        assert await serious_flaws(seen.page) == []
        await tasks.filter(has_text="a.task-1").get_by_role("link").click()
        drawer = seen.page.get_by_role("dialog")
        await drawer.locator("summary").filter(has_text="a.task-1").click()
        await expect(drawer.locator("details[open]")).to_contain_text("result of a.task-1")
        await expect(drawer.locator("details")).to_have_count(8)
        assert await serious_flaws(seen.page) == []
