"""Killed processes leave coroutines behind that were never awaited: whenever those are let go, it is no news."""

from pathlib import Path

import pytest

ROOM = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(ROOM):
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"))
