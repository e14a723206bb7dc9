"""Work that no message carries: what becomes of it when the process ends."""

import asyncio

from agent_service.background import Background


async def test_what_is_begun_while_the_process_ends_is_left_to_the_next_one() -> None:
    done: list[str] = []

    async def work(name: str) -> None:
        done.append(name)

    async with asyncio.TaskGroup() as group:
        background = Background(group)
        background.start(work("in time"))
    background.start(work("too late"))  # and no warning of a coroutine that nobody awaits
    assert done == ["in time"]
