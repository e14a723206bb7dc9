from collections.abc import AsyncIterator

import pytest

from tests.gateway.outbound.kit import Receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver().listening() as receiver:
        yield receiver
