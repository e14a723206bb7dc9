"""Runs benchmark tasks on an agent whose only tools are those of the benchmark, offered by an executor on its bus."""

import asyncio
import datetime as dt
import json
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import yaml
from nats.aio.client import Client as Bus
from nats.aio.msg import Msg

from agent_service.bus.topology import Executor, topology
from agent_service.workbench.dev import POLL_S, Service, free_port
from agent_service.workbench.dev_settings import DevOptions, names_a_model, write_settings
from agent_service.workbench.embedded_nats import EmbeddedNats
from agent_service.workbench.evaluation.results import Result
from agentic_client import AsyncClient, Run
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import set_up
from schemas import subjects
from schemas.catalog import Catalog, ToolOffer
from schemas.events import Envelope, ToolError, ToolOutput, ToolRequest, ToolResult

NAME = "lab-executor"
LIMITS = {"max_steps": 80, "max_attempts_of_run": 200, "max_questions": 80, "max_notes": 100_000}
GIVES_UP = "It cannot be done like this."


@dataclass(frozen=True, slots=True)
class Call:
    command: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    question: str


Move = Call | Ask


@dataclass(kw_only=True)
class Case(ABC):
    """One task, played once on its own copy of the environment. `moves` and `last_words` are how a script plays it."""

    name: str
    goal: str
    offer: ToolOffer
    moves: Sequence[Move]
    last_words: str
    context: dict[str, Any] = field(default_factory=dict)

    @abstractmethod
    def call(self, command: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Returns the tool's text, and True if it is an error."""

    def answer(self, question: str) -> str:
        del question
        return "Nothing can be asked here: decide it yourself."

    @abstractmethod
    def unmet(self, ending: str) -> dict[str, tuple[str, ...]]:
        """Failures at the end by measure. `ending` is the outcome, or the reason."""

    def rules(self, goal: str) -> Iterator[dict[str, Any]]:
        """Yields script rules for runs whose goal matches the pattern. Of two points that differ by an answer the later
        comes first."""
        items = ["The matter is known.", "What is needed was done.", "It is told what came of it."]
        framing = {"goal_statement": "The matter is settled.", "definition_of_done": items}
        yield {"phase": "frame", "when": {"goal": goal}, "frame": framing}
        found, steps, asked = list[dict[str, Any]](), 0, 0
        for move in (*self.moves, None):
            when = {"goal": goal, "steps": steps} | ({"person": rf"\[{asked}\]"} if asked else {})
            found.append({"phase": "reflect" if steps else "plan", "when": when} | self._decision(move, steps))
            steps, asked = steps + isinstance(move, Call), asked + isinstance(move, Ask)
        yield from reversed(found)
        for phase in ("plan", "reflect"):
            yield {"phase": phase, "when": {"goal": goal}, "reflect": _escalated(GIVES_UP)}

    def _decision(self, move: Move | None, steps: int) -> dict[str, Any]:
        match move:
            case Call(command, arguments):
                action = {"tool": self.offer.name, "command": command, "arguments": dict(arguments)}
                decided: dict[str, Any] = {"plan": {"action": json.loads(json.dumps(action).replace("$", "$$"))}}
            case Ask(question):
                tried = {"tried": "What can be done here was done.", "would_change": "what comes next"}
                decided = {"ask": {"question": question.replace("$", "$$"), **tried}}
            case None if steps:
                met = [{"item": f"d{item}", "evidence": f"step:{steps}"} for item in (1, 2, 3)]
                outcome = self.last_words.replace("$", "$$") or "It is done."
                return {"reflect": {"verdict": "done", "summary": "It is done.", "met": met, "outcome": outcome}}
            case None:
                return {"reflect": _escalated(self.last_words.replace("$", "$$") or GIVES_UP)}
        return decided | ({"reflect": {"verdict": "continue", "summary": "It goes on."}} if steps else {})


def _escalated(why: str) -> dict[str, str]:
    return {"verdict": "escalate", "summary": why}


Task = tuple[ToolOffer, Callable[[], Case]]
"""A tool, and a factory of the case that uses it."""
Person = Callable[[Case, str, Mapping[str, Any]], bool]
PERSONS: dict[str, Person] = {
    "approves": lambda *_: True,
    "rejects": lambda *_: False,
    "careful": lambda case, command, arguments: Call(command, arguments) in case.moves,
}
"""Answers to approval requests: `careful` allows exactly the calls of the task's own solution."""


class Bench:
    def __init__(self, client: AsyncClient, bus: Bus, offers: Sequence[ToolOffer], person: Person) -> None:
        self._client = client
        self._bus = bus
        self._catalog = Catalog(executor=NAME, tools=tuple(offers)).model_dump_json().encode()
        self._person = person
        self._cases: dict[str, asyncio.Future[Case]] = defaultdict(asyncio.Future)
        self._answers: dict[str, bytes] = {}

    async def serve(self) -> None:
        """Executes each request once."""
        requests = await self._bus.subscribe(f"{NAME}.requests", queue=NAME)
        await self._bus.subscribe("ductile-gateway.catalog", cb=self._tell)
        async for message in requests.messages:
            await self._carry_out(message)

    async def _tell(self, asked: Msg) -> None:
        await asked.respond(self._catalog)

    async def _carry_out(self, message: Msg) -> None:
        asked = Envelope[ToolRequest].model_validate_json(message.data)
        request, key = asked.payload, re.sub(r":request(?=(:attempt:\d+)?$)", ":result", asked.dedupe_key or "")
        if key not in self._answers:
            case = await self._cases[request.run_id]
            text, failed = case.call(request.tool_command, dict(request.tool_payload))
            reply = (
                {"error": ToolError(error_class="tool_error", message=text)} if failed else {"result": _output(text)}
            )
            echo = request.model_dump(include={"run_id", "step", "tool", "attempt", "task", "round", "capability"})
            result = ToolResult(
                **echo, status="error" if failed else "ok", completed_at=dt.datetime.now(dt.UTC), **reply
            )
            self._answers[key] = Envelope[ToolResult](type=subjects.TOOL_RESULT, payload=result, dedupe_key=key).body()
        await self._bus.jetstream().publish(subjects.TOOL_RESULT, self._answers[key], headers={"Nats-Msg-Id": key})
        await message.ack()

    async def play(self, case: Case, goal: str, label: str) -> list[Result]:
        """Plays the case to its end and returns one result per measure."""
        accepted = await self._client.wake(goal, context=case.context, max_steps=LIMITS["max_steps"])
        self._cases[accepted.run_id].set_result(case)
        while not (run := await self._client.wait(accepted)).ended and run.asks:
            await self._heard(case, run)
        started, ended = run.started_at or run.accepted_at, run.ended_at or run.updated_at
        rows = case.unmet(run.outcome or run.reason)
        facts = {
            "scenario": case.name,
            "title": case.goal[:100],
            "models": (label,),
            "run_id": run.run_id,
            "status": run.status,
            "ending_class": run.ending_class,
            "ending": run.outcome or run.reason,
            "steps": len(run.steps),
            "seconds": (ended - started).total_seconds(),
            **run.usage.model_dump(include={"calls", "tokens", "cost_usd"}),
        }
        return [
            Result.model_validate({**facts, "name": f"{case.name} {group}", "group": group, "unmet": unmet})
            for group, unmet in rows.items()
        ]

    async def _heard(self, case: Case, run: Run) -> None:
        asks = run.asks
        if asks and asks.kind == "approval" and asks.command:
            if self._person(case, asks.command, asks.arguments or {}):
                await self._client.approve(run, arguments_hash=asks.arguments_hash)
            else:
                await self._client.reject(run, reason="I did not ask for this.")
        elif asks and asks.kind == "question":
            await self._client.answer(run, await asyncio.to_thread(case.answer, asks.question or ""))
        else:
            await self._client.cancel(run, reason="nothing here can be answered")


def _output(text: str) -> ToolOutput:
    return ToolOutput.model_validate({"summary": text})


async def play(
    tasks: Sequence[Task], folder: Path, *, config: Path | None, person: str, repeat: int, jobs: int
) -> list[Result]:
    """Plays each task `repeat` times with the model of `config`, or with scripts of the solutions if it names none."""
    script = None if names_a_model(config) else folder / "script.yaml"
    if script:
        rules = [rule for place, (_, make) in enumerate(tasks) for rule in make().rules(rf"\[case {place}\]$")]
        script.write_text(yaml.safe_dump({"name": "lab", "rules": rules}), encoding="utf-8")
    offers = {offer.name: offer for offer, _ in tasks}
    slots = asyncio.Semaphore(jobs)
    async with _bench(folder, config, script, list(offers.values()), PERSONS[person]) as bench:

        async def one(place: int) -> list[Result]:
            async with slots:
                case = await asyncio.to_thread(tasks[place][1])  # a user may be asked what they want
                goal = f"{case.goal} [case {place}]" if script else case.goal
                return await bench.play(case, goal, f"script:{case.name}" if script or not config else config.stem)

        played = [one(place) for place in range(len(tasks)) for _ in range(repeat)]
        return [result for results in await asyncio.gather(*played) for result in results]


@asynccontextmanager
async def _bench(
    folder: Path, config: Path | None, script: Path | None, offers: Sequence[ToolOffer], person: Person
) -> AsyncIterator[Bench]:
    """Starts a bus, an agent and this executor, without a gateway, so that the benchmark's tools are the only ones."""
    port = free_port()
    options = DevOptions(folder=folder, file=config, agent={"limits": LIMITS}, script=script)
    async with EmbeddedNats(folder / "nats", sync_interval="1s") as nats_server:
        routes = ",".join(offer.route for offer in offers)
        async with connect(NatsSettings(urls=(nats_server.url,))) as link:
            await set_up(link, topology(max_gib=1, executors=[Executor.read(f"{NAME}={routes}")]))
        path = await write_settings(options, nats_server.url, port, free_port())
        (folder / "logs").mkdir()
        agent = Service("agent", "agent_service", folder, path)
        async with AsyncClient(f"http://127.0.0.1:{port}") as client, asyncio.TaskGroup() as group:
            bench = Bench(client, bus := await nats.connect(nats_server.url), offers, person)
            working = [group.create_task(work) for work in (bench.serve(), agent.run())]
            while True:
                if {offer.name for offer in offers} <= {tool.name for tool in await client.tools()}:
                    break
                await asyncio.sleep(POLL_S)
            yield bench
            for task in working:
                task.cancel()
        await bus.close()
