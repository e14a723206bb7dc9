"""A store that has the journals of stories."""

from agent_service.run.journal import Run, commit_of
from agent_service.run.ports import Wake
from tests.core.rules.reading import entries
from tests.core.script import Script
from tests.kit.fakes import MemoryStore


async def stored(*stories: Script) -> MemoryStore:
    store = MemoryStore()
    for number, story in enumerate(stories):
        before = None
        for moment in entries(story.story):
            commit = commit_of(before, moment.event, moment.transition)
            if before is None:
                await store.accept(Wake(wake_id=f"wake-{number}", digest=""), commit)
            else:
                await store.commit(commit)
            before = Run(state=commit.state, head=commit.entry.hash)
    return store
