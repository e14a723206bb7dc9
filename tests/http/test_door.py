"""The door, as the process ends behind it."""

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from agent_service.api.door import Door

SCOPE: Scope = {
    "type": "http",
    "method": "POST",
    "path": "/v1/wake",
    "raw_path": b"/v1/wake",
    "headers": [(b"host", b"127.0.0.1")],
}


async def test_what_is_in_hand_when_the_process_ends_is_told_to_come_again() -> None:
    sent = await cut_off(begun=False)
    assert [message.get("status") for message in sent] == [503, None]
    assert b'"code":"try_again"' in sent[1]["body"]


async def test_an_answer_that_has_begun_is_not_begun_again() -> None:
    with pytest.raises(asyncio.CancelledError):
        await cut_off(begun=True)


async def cut_off(*, begun: bool) -> list[Message]:
    """What is said to a caller of something that takes for ever."""
    sent, inside = list[Message](), asyncio.Event()

    async def takes_for_ever(_: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        inside.set()
        await receive()

    async def nothing_comes() -> Message:
        return await asyncio.Event().wait() and {}

    async def send(message: Message) -> None:
        sent.append(message)

    answering = asyncio.ensure_future(Door(takes_for_ever, ["127.0.0.1"])(SCOPE, nothing_comes, send))
    await inside.wait()
    answering.cancel()
    await answering
    return sent
