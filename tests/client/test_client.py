"""The client against a whole stack, over HTTP and over the bus: what it does, through a crash of the agent."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agent_service.workbench.dev import PLUGINS, DevOptions, DevStack, stack
from agentic_client import AsyncClient, Client, Conflict, Invalid, NotFound, StillRunning

DONE = [{"item": f"d{n}", "evidence": "step:1"} for n in (1, 2, 3)]
LETTER = {"tool": "letter", "command": "write", "arguments": {"text": "$goal"}}
ECHO = {"tool": "echo", "command": "handle", "arguments": {"message": "$goal"}}
FRAME = {"goal_statement": "$goal", "definition_of_done": ["one", "two", "three"]}
SCRIPT = {
    "name": "client",
    "rules": [
        {"phase": "frame", "when": {"goal": "^slowly"}, "wait_s": 2, "frame": FRAME},
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
    """A stack of which a person must allow letters, and is asked where the goal begins with `ask`."""
    folder = tmp_path_factory.mktemp("client")
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    plugins, asked_first = (PLUGINS, Path(__file__).parent / "plugins"), {"approve": {"letter": "always"}}
    options = DevOptions(folder=folder / "stack", script=script, plugins=plugins, agent=asked_first)
    async with stack(options) as made:
        yield made


@pytest.fixture(params=["http", "nats"])
def url(request: pytest.FixtureRequest, made: DevStack) -> str:
    return made.url if request.param == "http" else made.nats.url


async def test_a_goal_is_pursued_to_its_end_and_told_event_by_event(url: str) -> None:
    async with AsyncClient(url) as client:
        run = await client.run("say hello", max_steps=3)
        assert (run.status, run.done, run.budget.max_steps) == ("done", True, 3)
        assert [step.tool for step in run.steps] == ["echo"]
        told = [event async for event in client.events(run)]
        assert [event.seq for event in told] == list(range(1, len(told) + 1))
        assert told[-1].status == "done"
        assert [event.seq async for event in client.events(run, after=2)] == [event.seq for event in told[2:]]
        assert [line.run_id for line in (await client.runs(status="done", limit=1)).runs] == [run.run_id]


async def test_the_same_wake_is_the_same_run_and_another_one_under_its_name_is_refused(url: str) -> None:
    async with AsyncClient(url) as client:
        first, again = [await client.wake("once", wake_id=f"once-{url[:4]}") for _ in range(2)]
        assert first.run_id == again.run_id
        with pytest.raises(Conflict, match="wake_id"):
            await client.wake("twice", wake_id=first.wake_id)


async def test_a_run_that_asks_for_leave_is_allowed_and_what_it_made_is_read(url: str) -> None:
    async with AsyncClient(url) as client:
        run = await client.run("write that the page is up")
        assert run.status == "paused"
        assert run.asks is not None
        assert (run.asks.kind, run.asks.tool) == ("approval", "letter")
        assert run.asks.arguments_hash is not None
        with pytest.raises(Conflict):
            await client.approve(run, arguments_hash="0" * 32)
        await client.approve(run, arguments_hash=run.asks.arguments_hash, by="ann")
        ended = await client.wait(run)
        assert ended.artifacts == ("artifacts/letter-01.txt",)
        assert await client.artifacts(ended) == {"artifacts/letter-01.txt": b"write that the page is up"}
        with pytest.raises(NotFound):
            await client.read(ended, "artifacts/other.md")


async def test_a_run_hears_why_it_is_rejected(url: str) -> None:
    async with AsyncClient(url) as client:
        run = await client.run("write that the page is down")
        assert await client.reject(run, reason="not now") != "paused"
        assert (await client.wait(run)).status == "escalated"


async def test_a_run_is_cancelled_once_and_asks_for_nothing_more(url: str) -> None:
    async with AsyncClient(url) as client:
        run = await client.run("write that nobody is there")
        assert await client.cancel(run, reason="enough") == "cancelled"
        assert (await client.cancel(run), (await client.show(run)).status) == ("cancelled", "cancelled")
        with pytest.raises(Conflict, match="asks for no approval"):
            await client.approve(run)


async def test_a_run_is_told_what_it_did_not_ask_for(url: str) -> None:
    async with AsyncClient(url) as client:
        run = await client.wake("slowly be told something")
        assert await client.say(run, "in French", signal_id="s-1", by="ann") in ("queued", "running")
        await client.say(run, "in French", signal_id="s-1", by="ann")
        heard = [event async for event in client.events(run) if event.kind == "SignalReceived"]
    assert [event.event["signal"]["message"] for event in heard] == ["in French"]


async def test_the_tools_of_runs_are_listed_with_what_they_take(url: str) -> None:
    async with AsyncClient(url) as client:
        tools = {tool.name: tool for tool in await client.tools()}
    assert tools["echo"].present
    assert tools["echo"].commands[0].input_schema["type"] == "object"


async def test_a_question_is_answered(url: str) -> None:
    async with AsyncClient(url) as client:
        run = await client.run("ask which")
        assert run.asks is not None
        assert (run.asks.question, run.asks.choices) == ("Which?", ("a", "b"))
        assert await client.answer(run, "b") != "paused"
        assert (await client.wait(run)).done


async def test_what_cannot_be_taken_names_its_field_and_its_run(url: str) -> None:
    async with AsyncClient(url) as client:
        with pytest.raises(Invalid) as refused:
            await client.wake("x", max_steps=-1)
        assert refused.value.field == "constraints.max_steps"
        with pytest.raises(NotFound) as unknown:
            await client.show("run_01M83VND07GNVAYQFY3XQ51T1D")
        assert unknown.value.run_id == "run_01M83VND07GNVAYQFY3XQ51T1D"


async def test_waiting_has_an_end_and_the_run_goes_on(url: str) -> None:
    async with AsyncClient(url) as client:
        accepted = await client.wake("slowly say hello")
        with pytest.raises(StillRunning) as waited:
            await client.wait(accepted, timeout_s=0.1)
        assert waited.value.run_id == accepted.run_id
        assert (await client.wait(accepted)).done


async def test_nothing_is_lost_and_nothing_told_twice_when_the_agent_is_killed(url: str, made: DevStack) -> None:
    async with AsyncClient(url) as client:
        accepted = await client.wake("slowly say that all is well")
        told = []
        async for event in client.events(accepted):
            told.append(event)
            if len(told) == 2:
                made.agent.kill()
        assert [event.seq for event in told] == list(range(1, len(told) + 1))
        made.agent.kill()
        assert (await client.run("say hello again")).done
        assert (await client.wait(accepted)).done


async def test_a_program_without_an_event_loop_has_the_same(url: str, made: DevStack) -> None:
    def play() -> tuple[bool, int, int]:
        with Client(url) as client:
            accepted = client.wake("slowly do it")
            made.agent.kill()
            told = [event.seq for event in client.events(accepted)]
            return client.wait(accepted).done, len(told), told[-1]

    done, number, last = await asyncio.to_thread(play)
    assert done
    assert number == last
