"""Fixtures of the browser tests."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.cli.invoke import Dev
from tests.cli.invoke import dev as dev
from tests.kit.browser import Seen, browsing


@pytest.fixture
async def seen(dev: Dev) -> AsyncIterator[Seen]:
    """The page of a running stack in a browser; fails the test on any complaint of the browser."""
    async with browsing(dev.url) as seen:
        await seen.page.goto("/")
        yield seen
        assert (seen.complaints, seen.foreign) == ([], [])


@pytest.fixture
def page(seen: Seen) -> Any:
    return seen.page
