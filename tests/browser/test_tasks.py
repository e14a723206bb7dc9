"""Tasks of a step on the page: a tree beneath the step, with requests and results behind it."""

from pathlib import Path

import pytest

from tests.browser.home import at_home
from tests.core.cues import child_of
from tests.core.script import commits_of
from tests.core.words import PARENT, run_at
from tests.kit.browser import MISSING, needs_browser, serious_flaws
from tests.projections.courses import PLAYED
from tests.projections.journals import two_rounds

expect = pytest.importorskip("playwright.async_api", reason=MISSING).expect
pytestmark = [pytest.mark.browser, needs_browser]


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
