"""Texts of models and tools are shown on the page and never act there; the agent decides on permissions."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from agent_service.core.phases import Action, Framing, Plan
from agent_service.views.workspace.rendering import write
from tests.browser.home import at_home
from tests.http.house import House, secret
from tests.kit.browser import MISSING, needs_browser
from tests.kit.runs import accepted, replied, returned, started, whole_run

expect = pytest.importorskip("playwright.async_api", reason=MISSING).expect
pytestmark = [pytest.mark.browser, needs_browser]

ACTING = '<img src=x onerror="document.title=1;alert(1)"><script>alert(2)</script>'
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
