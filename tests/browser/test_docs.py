"""The documentation of the API in a browser."""

from pathlib import Path

import pytest

from tests.http.house import bearer, open_house, serving
from tests.kit.browser import browsing, needs_browser, serious_flaws

pytestmark = [pytest.mark.browser, needs_browser]


async def test_the_documentation_asks_nobody_else_and_keeps_nobody_out(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house, serving(house.app) as port:
        url = f"http://127.0.0.1:{port}"
        # what the page may not do itself, axe has to: run scripts
        async with browsing(url, bypass_csp=True, extra_http_headers=bearer("reader")) as seen:
            await seen.page.goto("/docs")
            await seen.page.get_by_role("heading", name="POST /v1/wake").wait_for()
            assert await serious_flaws(seen.page) == []
            assert (seen.complaints, seen.foreign) == ([], [])
