"""Three agents and a gateway on a cluster, as processes: any of them answers for any run, and another agent resumes the
work of a dead one."""

import itertools
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from schemas import subjects
from tests.http import wire
from tests.http.wire import Event
from tests.kit.cluster import Cluster
from tests.kit.fleet import Fleet, FleetOptions, Member, fleet
from tests.kit.stack import PROBES, api, entries, get, is_ready, messages, post, shown, to_the_end, until, wake
from tests.models.fake_anthropic import FakeAnthropic
from tests.models.model_house import action, reply, wanted
from tests.models.wire import KEY

STEPS = 2
ITEMS = [{"text": text, "proof": "step", "tool": ""} for text in ("one", "two", "three")]
FRAMING = {"goal_statement": "Lines are recorded.", "definition_of_done": ITEMS, "constraints": [], "assumptions": []}
MET = [{"item": f"d{n}", "evidence": "step:1", "quote": "recorded"} for n in (1, 2, 3)]
RECORDED: dict[str, Any] = {"summary": "a line was recorded", "met": [], "unmet": [], "facts": [], "outcome": None}
ON = RECORDED | {"verdict": "continue"}
DONE = RECORDED | {"verdict": "done", "met": MET, "outcome": "all is recorded"}


class Hold:
    """A model call that lasts until the test releases it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.over = threading.Event()


class RecordingMind:
    """Policy of the fake API that decides from the prompt alone, as a model would.

    Step n records a line in `<file><n>`, because repeating the same action would count as a stuck loop.
    """

    calls = STEPS + 2
    """A framing with the first plan, a reflection per step, and a verification of the claim."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._holds: dict[int, Hold] = {}
        self._asked = itertools.count(1)

    def lines(self) -> list[int]:
        files = (Path(f"{self._file}{step}") for step in range(1, STEPS + 1))
        return [len(file.read_text().splitlines()) if file.exists() else 0 for file in files]

    def hold(self, call: int) -> Hold:
        return self._holds.setdefault(call, Hold())

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        if hold := self._holds.get(next(self._asked)):
            hold.reached.set()
            hold.over.wait(30)
        if wanted(body) == "verification":
            return {"reason": "each quote shows its item", "doubted": [], "holds": True}
        if wanted(body) == "framing":
            return reply(framing=FRAMING, plan=self._plan(1))
        text = "\n".join(block["text"] for block in body["messages"][0]["content"])
        step = len(re.findall(r"<step number=", text))
        if step < STEPS:
            return reply(reflection=ON, plan=self._plan(step + 1))
        return reply(reflection=DONE, plan=None)

    def _plan(self, step: int) -> dict[str, Any]:
        return {
            "rationale": "a line is missing",
            "outline": None,
            "actions": [action("probe", "record", {"file": f"{self._file}{step}"})],
            "expected_outcome": "one more line",
            "risk": None,
        }


def asking(base_url: str) -> dict[str, Any]:
    return {"model": {"provider": "anthropic", "api_key": KEY, "base_url": base_url}}


pytestmark = pytest.mark.asyncio(loop_scope="module")

CLOCK = r"\d\d:\d\d UTC|\d+ minutes"
"""Times in a prompt."""
ELSEWHERE_WITHIN_S = 8.0
"""5 s until a process's messages go to another, plus time for a busy machine to begin."""
WITHIN_S = 90.0
ASKED = '->thinking"'
"""State transition of an entry that asks the model, in the log of the agent that committed it."""


@pytest.fixture(scope="module")
def model() -> Iterator[FakeAnthropic]:
    fake = FakeAnthropic()
    yield fake
    fake.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ships_of_file(tmp_path_factory: pytest.TempPathFactory, model: FakeAnthropic) -> AsyncIterator[Fleet]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "marks").mkdir()
    options = FleetOptions(
        folder=folder / "fleet",
        agents=3,
        store="jetstream",
        plugins=(PROBES,),
        written=(folder / "marks",),
        agent=asking(model.base_url) | {"log": {"level": "info"}},
    )
    async with Cluster(folder / "nodes") as cluster, fleet(cluster, options) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def ships(ships_of_file: Fleet) -> Fleet:
    """The fleet of the file, restored after each test."""
    await ships_of_file.heal()
    return ships_of_file


@pytest.fixture
def mind(request: pytest.FixtureRequest, ships: Fleet, model: FakeAnthropic) -> RecordingMind:
    made = RecordingMind(ships.options.written[0] / request.function.__name__[:40])
    model.policy, model.calls[:] = made, []
    return made


def thinking(ships: Fleet, run_id: str) -> tuple[Member, Member]:
    """The agent that makes the run's first model call, and another one."""
    said = {agent: agent.log.read_text().splitlines() for agent in ships.agents}
    (thinks,) = (agent for agent, lines in said.items() if any(run_id in line and ASKED in line for line in lines))
    return thinks, next(agent for agent in ships.agents if agent is not thinks)


async def kinds(member: Member, run_id: str) -> list[str]:
    return [entry["kind"] for entry in await entries(member, run_id)]


async def ended_once(ships: Fleet, member: Member, run_id: str, mind: RecordingMind) -> dict[str, int]:
    """Waits for the run's only end and returns its usage."""
    ended = await to_the_end(member, run_id)
    async with ships.cluster.linked() as link:
        told = [message async for message in messages(link, stream=subjects.STREAM)]
    endings = [message for message in told if message.subject in subjects.ENDINGS and run_id.encode() in message.body]
    assert (ended["state"], mind.lines(), len(endings)) == ("done", [1, 1], 1), ended
    return dict(ended["usage"])


async def followed(member: Member, run_id: str, *, after: int | None = None, most: int = 10_000) -> list[Event]:
    async with api(member) as client:
        return await wire.followed(client, f"/v1/runs/{run_id}/events", after=after, most=most, within_s=WITHIN_S)


@pytest.mark.usefixtures("mind")
async def test_what_one_agent_has_accepted_any_other_shows_at_once(ships: Fleet) -> None:
    first, second, _ = ships.agents
    for asked, other in ((first, second), (second, first)) * 3:
        async with api(other) as client:
            accepted = [await wake(asked) for _ in range(3)]  # an index pauses after the first
            listed = (await client.get("/v1/runs", params={"limit": 3})).json()["runs"]
        assert [run["run_id"] for run in listed] == accepted[::-1]
        run_id = accepted[-1]
        assert (await kinds(other, run_id))[0] == "WakeAccepted"
        assert (await get(other, f"/v1/runs/{run_id}/timeline")).json()["items"]
        await to_the_end(other, run_id)


async def test_a_run_whose_agent_is_killed_while_the_model_thinks_goes_on_elsewhere(
    ships: Fleet, model: FakeAnthropic, mind: RecordingMind
) -> None:
    """A reader misses nothing, and the other agent sends the same prompt."""
    held = mind.hold(1)
    run_id = await wake(ships.agents[0])
    await until(held.reached.is_set)
    first, second = thinking(ships, run_id)
    told = await followed(first, run_id, most=2)
    first.kill()
    killed_at = time.monotonic()
    await until(lambda: len(model.requests) == 2)
    assert time.monotonic() - killed_at < ELSEWHERE_WITHIN_S
    held.over.set()
    told += await followed(second, run_id, after=told[-1].id)
    used = await ended_once(ships, second, run_id, mind)
    assert (len(model.requests), used["calls"], used["lost_calls"]) == (mind.calls + 1, mind.calls, 1)
    lost, made = (re.sub(CLOCK, "", json.dumps(request)) for request in model.requests[:2])
    assert lost == made
    assert [event.id for event in told] == list(range(1, len(told) + 1))
    (third,) = set(ships.agents) - {first, second}
    assert await kinds(third, run_id) == await kinds(second, run_id)


async def test_the_reply_of_an_agent_that_was_stopped_for_too_long_counts_for_nothing_and_it_works_on(
    ships: Fleet, model: FakeAnthropic, mind: RecordingMind
) -> None:
    held, again = mind.hold(1), mind.hold(2)
    run_id = await wake(ships.agents[0])
    await until(held.reached.is_set)
    first, second = thinking(ships, run_id)
    first.stop()
    await until(again.reached.is_set)
    held.over.set()
    first.go_on()
    await first.ready()
    assert (await kinds(second, run_id))[-1] == "CallReserved"
    again.over.set()
    used = await ended_once(ships, first, run_id, mind)
    assert (len(model.requests), used["calls"], used["lost_calls"]) == (mind.calls + 1, mind.calls, 1)


@pytest.mark.usefixtures("mind")
async def test_without_a_leader_no_agent_is_ready_and_a_wake_is_refused_at_once_until_there_is_one(
    ships: Fleet,
) -> None:
    agent = ships.agents[0]

    async def wake_at(wake_id: str) -> tuple[int, str, float]:
        """Status of the answer, its run or error, and the seconds that it took."""
        began = time.monotonic()
        answer = await post(agent, "/v1/wake", goal="the same", wake_id=wake_id)
        told = answer.json()
        return answer.status_code, str(told.get("run_id") or told["error"]["message"]), time.monotonic() - began

    known = await wake_at("known")
    await shown(agent, known[1], lambda run: run["state"] == "done")
    for node in ships.cluster.nodes[1:]:
        node.kill()
    status, why, took = await wake_at("early")
    assert (status, "no server leads AGENTIC" in why, took < 12.0) == (503, True, True), (why, took)
    readiness = partial(get, agent, "/readyz")
    said = await until(readiness, lambda answer: subjects.STREAM_RUNS in answer.json()["checks"]["room"])
    assert said.status_code == 503
    status, _, took = await wake_at("late")
    assert (status, took < 4.0) == (503, True), took
    assert (await wake_at("known"))[:2] == known[:2], "what is known already is answered"
    await ships.cluster.heal()
    await until(lambda: is_ready(agent), within_s=WITHIN_S)
    assert (await wake_at("early"))[0] == 202
