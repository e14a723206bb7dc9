"""A store filled with the journals of stories."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_service.run.journal import Run, commit_of
from agent_service.store.runs import RunStore
from agent_service.store.sqlite import SqliteStore
from schemas.values import replace
from tests.core.rules.reading import entries
from tests.core.script import Script


@asynccontextmanager
async def stored(*stories: Script) -> AsyncIterator[RunStore]:
    with TemporaryDirectory() as folder:
        async with SqliteStore.open(Path(folder)) as store:
            for number, story in enumerate(stories):
                before = None
                for change in entries(story.story):
                    commit = commit_of(before, change.transition)
                    if before is None:
                        named = replace(commit.state, wake_id=f"wake-{number}")
                        await store.accept(replace(commit, state=named), "digest")
                    else:
                        await store.commit(commit)
                    before = Run(state=commit.state, head=commit.entry.hash)
            yield store
