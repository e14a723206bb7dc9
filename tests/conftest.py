"""Fixtures for tests of every folder, and modules that assert on behalf of tests."""

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ("tests.kit.bus", "tests.kit.cluster", "tests.kit.golden", "tests.lanes")
pytest.register_assert_rewrite("tests.core.rules")
gc.disable()  # until all tests are collected: nothing of them becomes garbage

# The same examples on every machine, unless HYPOTHESIS_PROFILE asks for more.
settings.register_profile(
    "ci",
    max_examples=120,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", parent=settings.get_profile("ci"), derandomize=False, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Folders of tests in memory, where it has room for them: nothing here outlives the machine.
MEMORY = Path("/dev/shm")  # noqa: S108 # only a place
ROOM = 4 << 30
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# A shell that runs the tests in the background has them ignore Ctrl-C, and with them all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.freeze()  # nor afterwards
    gc.enable()


OF_THIS_USER = ("AGENT", "ANTHROPIC_", "OPENAI_", "OTEL_", "SSL_CERT")


@pytest.fixture(scope="session", autouse=True)
def _by_themselves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hides the user's settings and the certificate authorities: each HTTP client would read all of the latter,
    which takes 20 ms."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(OF_THIS_USER)]:
            patch.delenv(name)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield
