"""A served Claude for the tests that want nothing special of it, and no authorities for anybody."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.models.fake_anthropic import ServedAnthropic, serve


@pytest.fixture(scope="session", autouse=True)
def _by_themselves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No settings of this machine's user, and no authorities: each client would read all of them anew."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "OPENAI_", "SSL_CERT"))]:
            patch.delenv(name)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield


@pytest.fixture
async def claude() -> AsyncIterator[ServedAnthropic]:
    async with serve() as served:
        yield served
