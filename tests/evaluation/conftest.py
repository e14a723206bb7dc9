"""No settings of this machine's user, and no certificate authorities: each client would read all of them anew."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _by_themselves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AGENT", "ANTHROPIC_", "OPENAI_", "SSL_CERT"))]:
            patch.delenv(name)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield
