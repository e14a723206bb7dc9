"""A served Claude for tests without special needs."""

from collections.abc import AsyncIterator

import pytest

from tests.models.fake_anthropic import Claude, serve


@pytest.fixture
async def claude() -> AsyncIterator[Claude]:
    async with serve() as served:
        yield served
