"""A real Chromium for tests of the page: found on PATH, or named by CHROMIUM, and driven by Playwright.

Debian has it (`apt-get install chromium`); `make test-browser` installs Playwright, and Chromium where permitted.
"""

import importlib.util
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

FOUND = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
DRIVEN = importlib.util.find_spec("playwright") is not None
MISSING = "no Chromium with Playwright: run `make test-browser`, or name a Chromium with CHROMIUM"
needs_browser = pytest.mark.skipif(not (FOUND and DRIVEN), reason=MISSING)
SANDBOXED = os.geteuid() != 0
"""Chromium's sandbox does not work for root."""
REFUSED_BY_THE_AGENT = "Failed to load resource: the server responded with a status of"
"""Chromium reports an error; the page shows the refusal as an answer."""


@dataclass(slots=True)
class Seen:
    page: Any
    complaints: list[str] = field(default_factory=list)
    """Script errors, violations of the Content-Security-Policy, and dialogs."""
    foreign: list[str] = field(default_factory=list)
    """Requests to hosts other than the agent."""


@asynccontextmanager
async def browsing(url: str, **context: Any) -> AsyncIterator[Seen]:
    """Opens `url`; `context` holds Playwright's options, such as `viewport` or `color_scheme`."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=FOUND, chromium_sandbox=SANDBOXED)
        opened = await browser.new_context(base_url=url, accept_downloads=True, **context)
        opened.set_default_timeout(15_000)
        seen = Seen(await opened.new_page())
        _watch(seen, url)
        yield seen
        await browser.close()


def _watch(seen: Seen, url: str) -> None:
    def asked(request: Any) -> None:
        if not request.url.startswith((url, "data:", "blob:")):
            seen.foreign.append(request.url)

    async def opened(dialog: Any) -> None:
        seen.complaints.append(f"a dialog: {dialog.message}")
        await dialog.dismiss()

    def said(message: Any) -> None:
        if message.type == "error" and not message.text.startswith(REFUSED_BY_THE_AGENT):
            seen.complaints.append(message.text)

    seen.page.on("request", asked)
    seen.page.on("dialog", opened)
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on("console", said)


async def serious_flaws(page: Any) -> list[str]:
    from axe_playwright_python.async_playwright import Axe

    found = (await Axe().run(page)).response["violations"]
    return [
        f"{flaw['id']}: {flaw['help']}: {[node['target'] for node in flaw['nodes']][:3]}"
        for flaw in found
        if flaw["impact"] in ("serious", "critical")
    ]
