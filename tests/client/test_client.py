"""The client against a whole stack, over HTTP and over the bus."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agent_service.workbench.dev import DevStack, stack
from agent_service.workbench.dev_settings import PLUGINS, DevOptions
from agentic_client import AsyncClient, Client, Conflict, Invalid, NotFound

DONE = [{"item": f"d{n}", "evidence": "step:1"} for n in (1, 2, 3)]
LETTER = {"tool": "letter", "command": "write", "arguments": {"text": "$goal"}}
ECHO = {"tool": "echo", "command": "handle", "arguments": {"message": "$goal"}}
FRAME = {"goal_statement": "$goal", "definition_of_done": ["one", "two", "three"]}
SCRIPT = {
    "name": "client",
    "rules": [
        {"phase": "frame", "frame": FRAME},
        {"phase": "plan", "when": {"goal": "^write"}, "plan": {"action": LETTER}},
        {"phase": "plan", "when": {"goal": "^ask"}, "ask": {"question": "Which?", "choices": ["a", "b"], "tried": "-"}},
        {"phase": "plan", "plan": {"action": ECHO}},
        {"phase": "reflect", "when": {"person": "not now"}, "reflect": {"verdict": "escalate", "summary": "not now"}},
        {"phase": "reflect", "when": {"steps": 1}, "reflect": {"verdict": "done", "summary": "done", "met": DONE}},
        {
            "phase": "reflect",
            "when": {"person": "b"},
            "reflect": {"verdict": "continue", "summary": "b"},
            "plan": {"action": ECHO},
        },
    ],
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevStack]:
    """A stack in which letters need an approval, and goals that begin with `ask` ask a person."""
    folder = tmp_path_factory.mktemp("client")
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    plugins, asked_first = (PLUGINS, Path(__file__).parent / "plugins"), {"approve": {"letter": "always"}}
    options = DevOptions(folder=folder / "stack", script=script, plugins=plugins, agent=asked_first)
    async with stack(options) as made:
        yield made


async def test_a_goal_is_pursued_to_its_end_and_told_event_by_event(made: DevStack) -> None:
    async with AsyncClient(made.url) as client:
        run = await client.run("say hello", max_steps=3)
        assert (run.status, run.done, run.budget.max_steps) == ("done", True, 3)
        assert [step.tool for step in run.steps] == ["echo"]
        told = [event async for event in client.events(run)]
        assert [event.seq for event in told] == list(range(1, len(told) + 1))
        assert told[-1].status == "done"
        assert [event.seq async for event in client.events(run, after=2)] == [event.seq for event in told[2:]]
        assert [line.run_id for line in (await client.runs(status="done", limit=1)).runs] == [run.run_id]


@pytest.mark.parametrize("door", ["http", "nats"])
async def test_a_run_is_woken_once_paused_ruled_on_and_cancelled_by_either_door(made: DevStack, door: str) -> None:
    async with AsyncClient(made.url if door == "http" else made.nats.url) as client:
        first, again = [await client.wake("write that the page is up", wake_id=f"once-{door}") for _ in range(2)]
        assert first.run_id == again.run_id
        with pytest.raises(Conflict, match="wake_id"):
            await client.wake("twice", wake_id=first.wake_id)
        run = await client.wait(first)
        assert run.asks is not None
        assert (run.status, run.asks.kind, run.asks.tool) == ("paused", "approval", "letter")
        with pytest.raises(Conflict):
            await client.approve(run, arguments_hash="0" * 32)
        await client.approve(run, arguments_hash=run.asks.arguments_hash, by="ann")
        ended = await client.wait(run)
        assert ended.artifacts == ("artifacts/letter-01.txt",)
        rejected, cancelled = [await client.run("write that the page is down") for _ in range(2)]
        assert await client.reject(rejected, reason="not now") != "paused"
        assert (await client.wait(rejected)).status == "escalated"
        assert await client.cancel(cancelled, reason="enough") == "cancelled"
        assert (await client.cancel(cancelled), (await client.show(cancelled)).status) == ("cancelled", "cancelled")
        with pytest.raises(Conflict, match="asks for no approval"):
            await client.approve(cancelled)
        asked = await client.run("ask which")
        assert asked.asks is not None
        assert (asked.asks.question, asked.asks.choices) == ("Which?", ("a", "b"))
        with pytest.raises(Conflict, match="not asked any more"):
            await client.answer(asked, "a", question_hash="0" * 32)
        shown = asked.asks
        assert await client.answer(asked, "b", question_hash=shown.question_hash) != "paused"
        assert (await client.wait(asked)).done
        with pytest.raises(Invalid) as refused:
            await client.wake("x", max_steps=-1)
        assert refused.value.field == "constraints.max_steps"
        with pytest.raises(NotFound) as unknown:
            await client.show("run_01M83VND07GNVAYQFY3XQ51T1D")
        assert unknown.value.run_id == "run_01M83VND07GNVAYQFY3XQ51T1D"
    async with AsyncClient(made.url) as reader:
        assert await reader.artifacts(ended) == {"artifacts/letter-01.txt": b"write that the page is up"}
        with pytest.raises(NotFound):
            await reader.read(ended, "artifacts/other.md")
        asked = await reader.run("write that the page moves")
        assert asked.asks is not None
        await reader.approve(asked)
        (said,) = [event.event["signal"] async for event in reader.events(asked) if event.kind == "SignalReceived"]
        assert (said["arguments_hash"], said["step"]) == (asked.asks.arguments_hash, 1)


async def test_what_the_bus_does_not_serve_is_refused_with_where_it_is_served(made: DevStack) -> None:
    run = "run_01M83VND07GNVAYQFY3XQ51T1D"
    async with AsyncClient(made.nats.url) as client:
        for ask in (client.runs(), client.tools(), client.files(run), client.read(run, "plan.md")):
            with pytest.raises(Invalid, match="HTTP API"):
                await ask
        with pytest.raises(Invalid, match="HTTP API"):
            await anext(client.events(run))


async def test_a_program_without_an_event_loop_has_the_same(made: DevStack) -> None:
    def play() -> tuple[bool, list[int]]:
        with Client(made.url) as client:
            accepted = client.wake("do it")
            told = [event.seq for event in client.events(accepted)]
            return client.wait(accepted).done, told

    done, told = await asyncio.to_thread(play)
    assert (done, told) == (True, list(range(1, len(told) + 1)))
