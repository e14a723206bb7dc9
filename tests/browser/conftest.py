"""Fixtures of the browser tests."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.cli.invoke import Dev
from tests.cli.invoke import dev as dev
from tests.kit.browser import browsing


@pytest.fixture
async def page(dev: Dev) -> AsyncIterator[Any]:
    """The page of a running stack in a browser; fails the test on any complaint of the browser."""
    async with browsing(dev.url) as seen:
        await seen.page.goto("/")
        yield seen.page
        assert (seen.complaints, seen.foreign) == ([], [])
