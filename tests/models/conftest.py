"""A served Claude for the tests that want nothing special of it."""

from collections.abc import AsyncIterator

import pytest

from tests.models.fake_anthropic import Claude, serve


@pytest.fixture
async def claude() -> AsyncIterator[Claude]:
    async with serve() as served:
        yield served
