"""An agent controlled by the test, and its page for the holder of a token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.http.house import House, open_house, secret, serving
from tests.kit.browser import Seen, browsing


@asynccontextmanager
async def at_home(folder: Path, who: str = "admin") -> AsyncIterator[tuple[House, Seen]]:
    async with (
        open_house(folder) as house,
        serving(house.app) as port,
        browsing(f"http://127.0.0.1:{port}") as seen,
    ):
        await seen.page.goto("/")
        await seen.page.get_by_role("textbox", name="Token").fill(secret(who))
        await seen.page.get_by_role("button", name="Use it").click()
        await seen.page.get_by_role("dialog").wait_for(state="detached")
        yield house, seen
