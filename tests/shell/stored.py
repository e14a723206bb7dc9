"""A store filled with the journals of stories, and a caller of models."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

from agent_service.store.runs import RunStore
from schemas.values import replace
from tests.core.script import Script, commits_of
from tests.ports import stores


@asynccontextmanager
async def stored(*stories: Script) -> AsyncIterator[RunStore]:
    """Each under a wake of its own."""
    with TemporaryDirectory() as folder:
        async with RunStore.open(Path(folder)) as store:
            for number, story in enumerate(stories):
                first, *others = commits_of(story)
                named = replace(first.state, wake_id=f"wake-{number}")
                await stores.stored(store, [replace(first, state=named), *others])
            yield store


def thinks(reply: Any = None) -> Any:
    """A caller of models that reserves nothing: this comes of each call, an event, an error, or by default nothing."""
    think, limits = AsyncMock(side_effect=[reply] * 9), SimpleNamespace(quotas=None)
    return SimpleNamespace(
        reserve=lambda decided: decided, think=think, limits=limits, abandon=Mock(), abandon_all=Mock()
    )
