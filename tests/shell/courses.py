"""Courses of runs in the small world: what models decide, tools bring, people say, and what is left in the end."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from agent_service.core.brief import Continuations, Limits
from agent_service.core.limits import LimitPolicy
from agent_service.core.phases import (
    Action,
    Ask,
    Framing,
    Met,
    Next,
    Phase,
    Plan,
    Proof,
    Reflection,
    Verdict,
    Verification,
    Wait,
)
from agent_service.core.state import RunState
from agent_service.core.waiting import Reserve, Status
from agent_service.run.journal import Entry, flaw_in_chain, rehearse
from agent_service.run.ports import Answer
from schemas import catalog, keys, subjects
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import Cancel, Envelope, ToolError, ToolOutput, ToolRequest
from tests.core.rules.reading import Story
from tests.core.rules.spending import every_paid_call_is_counted, what_was_set_aside_and_not_answered_is_lost_once
from tests.core.script import Moment
from tests.kit.runs import NOON
from tests.shell.mind import USAGE, Mind
from tests.shell.world import APPEND, POLICY, Person, Play, World

RESERVE = Reserve(tokens=700, cost_usd=0.25)
FRAMED = Framing(goal_statement="Append.", definition_of_done=("one", "two", "three"))


def reader(name: str, route: str, command: str = "handle", output: Any = "trusted") -> ToolOffer:
    return ToolOffer(name=name, route=route, output=output, commands=(ToolCommand(name=command, tier="read"),))


READ, SEEK, BROWSE = reader("read", "reader"), reader("seek", "seek"), reader("browse", "browse", output="untrusted")
SHELF = reader("knowledge", "shelf", "search")
STRANGE = SHELF.model_copy(update={"output": "untrusted"})


# Minds


def act(tool: str) -> Plan:
    return Plan(action=Action(tool=tool, command="handle", arguments={"text": "hello"}))


class Chooser(Mind):
    """Does what `chooses` says by where the run stands: what comes next, a verdict, or a framing by default."""

    chooses: Callable[[RunState], Next | Verdict]

    def _answer(self, state: RunState, phase: Phase) -> Answer:
        chosen = self.chooses(state)
        if phase is Phase.FRAME:
            return Answer(decision=FRAMED, usage=USAGE, model="mind")
        if phase is Phase.PLAN:
            assert not isinstance(chosen, Verdict)
            return Answer(decision=chosen, usage=USAGE, model="mind")
        if isinstance(chosen, Verdict):
            good = [record.step for record in state.completed if record.status == "ok"]
            met = tuple(Met(item=item.id, evidence=f"step:{good[-1]}") for item in state.done_items) if good else ()
            return Answer(decision=Reflection(verdict=chosen, summary="seen", met=met), usage=USAGE, model="mind")
        told = Reflection(verdict=Verdict.CONTINUE, summary="seen")
        return Answer(decision=told, plan=chosen, usage=USAGE, model="mind")


class DoubtedMind(Mind):
    """Quotes the first step, which only the journal has by then; who looks at its claim doubts an item of it."""

    def _answer(self, state: RunState, phase: Phase) -> Answer:
        if phase is Phase.FRAME:
            framing = replace(FRAMED, proofs=(Proof(kind="step", tool="append"),) * 3)
            return Answer(decision=framing, usage=USAGE, model="mind")
        if phase is Phase.VERIFY:
            found = Verification(holds=False, reason="one is not shown", doubted=("d1",))
            return Answer(decision=found, usage=USAGE, model="mind")
        if phase is Phase.REFLECT and len(state.completed) >= self.steps:
            claims = tuple(Met(item=item.id, evidence="step 1", quote="line 1") for item in state.done_items)
            done = Reflection(verdict=Verdict.DONE, summary="seen", met=claims)
            return Answer(decision=done, usage=USAGE, model="mind")
        return super()._answer(state, phase)


class Parents(Mind):
    """The first run starts two others at once, each of these another, and those append a line: one step each.

    `reflects`: what happens while a reflection is awaited, by the depth of its run.
    """

    deepest = 2
    reflects: dict[int, Callable[[], None]] = {}  # noqa: RUF012 # replaced as a whole

    def _plan(self, state: RunState) -> Plan:
        depth = state.brief.depth
        if depth == self.deepest:
            return Plan(action=Action(tool="append", command="handle", arguments={"n": 1}))
        goals = ("left", "right") if depth == 0 else ("below",)
        actions = [Action(tool="agent", command="run", arguments={"goal": goal}) for goal in goals]
        return Plan(action=actions[0], also=tuple(actions[1:]))

    def _answer(self, state: RunState, phase: Phase) -> Answer:
        self.steps = 2 if state.brief.depth == 0 else 1
        if phase is Phase.REFLECT and state.brief.depth in self.reflects:
            self.reflects[state.brief.depth]()
        return super()._answer(state, phase)


# What models choose, and people say


def browse_and_append(state: RunState) -> Next | Verdict:
    if not state.completed:
        return act("browse")
    return act("append") if len(state.completed) < 2 and not state.rulings else Verdict.DONE


def ask_and_append(state: RunState) -> Next | Verdict:
    if not state.messages:
        return Ask(question="Which?", choices=("a", "b"))
    return Verdict.DONE if state.completed else act("append")


def append_wait_and_append(state: RunState) -> Next | Verdict:
    if len(state.completed) == 2:
        return Verdict.DONE
    return act("append") if state.waited_at_step == len(state.completed) else Wait(why="later", seconds=60.0)


def escalate_and_append(state: RunState) -> Next | Verdict:
    if not state.completed:
        return act("append")
    return Verdict.DONE if state.messages else Verdict.ESCALATE


def append_until_it_is_known(state: RunState) -> Next | Verdict:
    return Verdict.DONE if any(record.status == "ok" for record in state.completed) else act("append")


def seek_once(state: RunState) -> Next | Verdict:
    return Verdict.DONE if state.completed else act("seek")


def seek_or_append(state: RunState) -> Next | Verdict:
    """The run that is asked for seeks, its children append a line."""
    if state.completed:
        return Verdict.DONE
    return act("append") if state.brief.depth else act("seek")


def nobody(_: dict[str, Any]) -> None:
    return None


def approves(told: dict[str, Any]) -> dict[str, Any] | None:
    name = told.get("arguments_hash")
    return {"signal_id": f"yes-{name}", "kind": "approve", "arguments_hash": name} if name else None


def rejects(told: dict[str, Any]) -> dict[str, Any] | None:
    ruled = approves(told)
    return {**ruled, "kind": "reject", "message": "not now"} if ruled else None


def answers(told: dict[str, Any]) -> dict[str, Any] | None:
    return {"signal_id": "answer", "kind": "answer", "message": "a"} if told.get("question") else None


def reopens(told: dict[str, Any]) -> dict[str, Any] | None:
    return {"signal_id": "reopen", "kind": "answer", "message": "go on"} if "class" in told else None


def more_time(told: dict[str, Any]) -> dict[str, Any] | None:
    later = {"deadline_at": NOON + timedelta(hours=1)}
    return {"signal_id": "later", "kind": "raise_budget", "constraints": later} if told.get("resumable") else None


def settles(outcome: str) -> Person:
    def says(told: dict[str, Any]) -> dict[str, Any] | None:
        said = {"signal_id": outcome, "kind": "answer", "outcome": outcome, "message": "I looked"}
        return said if told.get("kind") == "in_doubt" else None

    return says


# What tools bring

GRAPH: list[dict[str, Any]] = [
    {"id": "a", "action": "retrieve", "query": "a"},
    {"id": "b", "action": "retrieve", "query": "b"},
    {"id": "c", "action": "plugin", "plugin": "append", "input": {"text": "c"}, "depends_on": ["a"]},
    {"id": "d", "action": "retrieve", "query": "d", "depends_on": ["b"]},
    {"id": "e", "action": "retrieve", "query": "e", "depends_on": ["a", "b"]},
    {"id": "f", "action": "retrieve", "query": "f", "depends_on": ["c", "d", "e"]},
]
AGENTS: list[dict[str, Any]] = [
    {"id": "a", "action": "plugin", "plugin": "agent", "input": "append one"},
    {"id": "b", "action": "plugin", "plugin": "agent", "input": "append two"},
    {"id": "c", "action": "plugin", "plugin": "agent", "input": "compare", "depends_on": ["a", "b"]},
]
NOT_NOW = ToolError(error_class="upstream", message="not now", retryable=True)
LOST = ToolError(error_class="in_doubt", message="the receipt is lost", retryable=False)


def plain(_: ToolRequest) -> dict[str, Any]:
    return {}


def continuing(asked: dict[str, Any]) -> dict[str, Any]:
    return {"status": "continuation", "result": ToolOutput.model_validate({"continuation": asked})}


def evidence(request: ToolRequest) -> list[dict[str, Any]]:
    found: Any = request.tool_payload.get("evidence", [])
    return list(found)


def answered(request: ToolRequest) -> dict[str, Any]:
    """What the step's tool makes of its evidence: the tasks in their order, each with what came of it."""
    ends = " ".join(f"{item['task']}:{item['status']}" for item in evidence(request))
    return {"result": ToolOutput.model_validate({"summary": ends})}


def asks(tasks: Sequence[dict[str, Any]]) -> Play:
    """The tool of the step asks for all of them at once."""

    def plays(request: ToolRequest) -> dict[str, Any]:
        if request.tool != "seek":
            return {}
        return answered(request) if request.task else continuing({"action": "multi-step", "tasks": [*tasks]})

    return plays


six_tasks = asks(GRAPH)


def three_rounds(request: ToolRequest) -> dict[str, Any]:
    if request.tool != "seek":
        return {}
    over = len({item["round"] for item in evidence(request)})
    return continuing({"action": "retrieve", "query": f"more {over}"}) if over < 3 else answered(request)


def nested(request: ToolRequest) -> dict[str, Any]:
    """As six tasks, but task d asks for something in its turn."""
    if request.tool == "knowledge" and request.task == "d":
        return continuing({"action": "retrieve", "query": "for d"})
    return six_tasks(request)


def stumbling(request: ToolRequest) -> dict[str, Any]:
    """As six tasks, but each read fails at first."""
    if request.attempt == 1 and request.tool != "append":
        return {"status": "error", "result": None, "error": NOT_NOW}
    return six_tasks(request)


def losing(request: ToolRequest) -> dict[str, Any]:
    """As six tasks, but nobody knows what came of the write."""
    return {"status": "error", "result": None, "error": LOST} if request.tool == "append" else six_tasks(request)


# Courses


@dataclass(frozen=True, kw_only=True)
class Course:
    mind: type[Mind] = Chooser
    chooses: Callable[[RunState], Next | Verdict] = seek_once
    plays: Play = plain
    says: Person = nobody
    tools: tuple[ToolOffer, ...] = (APPEND,)
    policy: LimitPolicy = POLICY
    asks_for: dict[str, Any] = field(default_factory=dict)
    """Constraints of the start."""
    set_up: Callable[[World], object] = lambda _: None
    verify: bool = False
    ran: dict[str, int]
    """How often each tool was called, attempts included."""
    brought: str | None = None
    """What the steps of the run say."""
    asked: tuple[str, ...] = ()
    """The kinds of what was asked of people, in order."""
    said: tuple[str, ...] = ()
    """What the run has heard, in order."""
    escalated: int = 0
    runs: int = 1
    spent: dict[str, int] = field(default_factory=dict)
    """Of the run that was asked for."""


PATIENT = replace(POLICY, defaults=replace(POLICY.defaults, approval_s=120.0))
PEOPLE: dict[str, Any] = {"tools": (BROWSE, APPEND), "policy": PATIENT, "asks_for": {"max_steps": 5}}
SEVERAL = replace(POLICY, defaults=replace(POLICY.defaults, parallel_reads=3))
FAMILY = replace(POLICY, defaults=replace(POLICY.defaults, max_depth=2, parallel_reads=2, max_steps=40))
ONCE = Continuations(max_plugin_continuations=1)
TASKS_ARE_RUNS = LimitPolicy(defaults=replace(POLICY.defaults, max_depth=1, max_steps=40, continuations=ONCE))
LIMITS = Limits(
    deadline_at=NOON,
    approval_s=120.0,
    continuations=Continuations(max_plugin_total_time_ms=10**8),
    parallel_reads=2,
    on_budget="pause",
)


def until_(time: timedelta) -> dict[str, Any]:
    return {"max_steps": 5, "deadline_at": f"{NOON + time:%Y-%m-%dT%H:%M:%SZ}"}


GATHERS: dict[str, Any] = {
    "tools": (SEEK, SHELF, APPEND),
    "policy": LimitPolicy(defaults=LIMITS),
    "asks_for": until_(timedelta(hours=1)),
}
STRANGERS = GATHERS | {"tools": (SEEK, STRANGE, APPEND)}
CHILDREN: dict[str, Any] = {
    "tools": (SEEK, SHELF, APPEND, catalog.offer()),
    "policy": TASKS_ARE_RUNS,
    "chooses": seek_or_append,
}
ALL_OK, NO_C = "a:ok b:ok c:ok d:ok e:ok f:ok", "a:ok b:ok c:error d:ok e:ok f:error"
SIX = {"seek": 2, "append": 1, "knowledge": 5}
REFUSED = {"seek": 2, "knowledge": 4}


def opens_with_a_plan(world: World) -> None:
    world.mind.opens = True


def reads_three_at_once(world: World) -> None:
    """Twice; the second of them fails at first."""
    world.mind.side_by_side, world.mind.steps = 3, 6
    world.gateway.failing = {(2, 1)}


def loses_its_first_write(world: World) -> None:
    world.gateway.losing = {1}


COURSES = {
    "two steps": Course(mind=Mind, ran={"append": 2}),
    "opens with a plan": Course(mind=Mind, set_up=opens_with_a_plan, ran={"append": 2}),
    "a doubted claim": Course(mind=DoubtedMind, verify=True, ran={"append": 2}, spent={"calls": 6}),
    "three reads at once": Course(
        mind=Mind,
        set_up=reads_three_at_once,
        tools=(READ,),
        policy=SEVERAL,
        ran={"read": 7},
        spent={"calls": 4},
    ),
    "approval": Course(
        chooses=browse_and_append, says=approves, asked=("approval",), ran={"browse": 1, "append": 1}, **PEOPLE
    ),
    "refusal": Course(
        chooses=browse_and_append, says=rejects, asked=("approval",), ran={"browse": 1}, said=("not now",), **PEOPLE
    ),
    "question": Course(
        chooses=ask_and_append, says=answers, asked=("question",), ran={"append": 1}, said=("a",), **PEOPLE
    ),
    "wait": Course(chooses=append_wait_and_append, ran={"append": 2}, **PEOPLE),
    "reopening": Course(
        chooses=escalate_and_append, says=reopens, ran={"append": 1}, said=("go on",), escalated=1, **PEOPLE
    ),
    "in doubt": Course(
        chooses=append_until_it_is_known,
        set_up=loses_its_first_write,
        says=settles("did_not_run"),
        asked=("in_doubt",),
        ran={"append": 2},
        said=("I looked",),
        escalated=1,
        **PEOPLE,
    ),
    "a family": Course(
        mind=Parents,
        tools=(APPEND, catalog.offer()),
        policy=FAMILY,
        ran={"append": 2},
        runs=5,
        spent={"child_steps": 4, "tokens": 15 * 3 * 5},  # a framing, a plan and a reflection of each
    ),
    "tasks that are runs": Course(
        plays=asks(AGENTS), brought="a:ok b:ok c:ok", ran={"seek": 2, "append": 3}, runs=4, **CHILDREN
    ),
    "three rounds": Course(
        plays=three_rounds, brought="task-1:ok task-1:ok task-1:ok", ran={"seek": 4, "knowledge": 3}, **GATHERS
    ),
    "six tasks": Course(plays=six_tasks, brought=ALL_OK, ran=SIX, **GATHERS),
    "a task that continues": Course(plays=nested, brought=ALL_OK, ran=SIX | {"knowledge": 7}, **GATHERS),
    "pause": Course(
        plays=stumbling,
        brought=ALL_OK,
        ran={"seek": 4, "append": 1, "knowledge": 10},
        says=more_time,
        asked=("budget",),
        escalated=1,
        **GATHERS | {"asks_for": until_(timedelta(seconds=30))},
    ),
    "approval of a task": Course(
        plays=six_tasks, brought=ALL_OK, ran=SIX, says=approves, asked=("approval",), **STRANGERS
    ),
    "expiry of a task": Course(plays=six_tasks, brought=NO_C, ran=REFUSED, asked=("approval",), **STRANGERS),
    "a task in doubt": Course(
        plays=losing,
        brought=ALL_OK,
        ran=SIX,
        says=settles("ran"),
        said=("I looked",),
        asked=("in_doubt",),
        escalated=1,
        **GATHERS,
    ),
}
GATHERING = frozenset(name for name, course in COURSES.items() if SEEK in course.tools)


def begun(course: Course, reserve: Reserve | None = None) -> World:
    """A world in which the run of the course was asked for."""
    world = World(reserve=reserve, tools=course.tools, mind=course.mind, policy=course.policy, verify=course.verify)
    if isinstance(world.mind, Chooser):
        world.mind.chooses = course.chooses
    world.person, world.gateway.plays = course.says, course.plays
    course.set_up(world)
    world.start(**course.asks_for)
    return world


def stop_the_family(world: World) -> None:
    """Somebody cancels the first run, once."""
    first = next(delivery for key, delivery in world.bus.published.items() if key.endswith(":step:1:request"))
    run_id = Envelope[Any].model_validate_json(first.body).payload["run_id"]
    cancelled = Envelope[Cancel](type=subjects.CANCEL, payload=Cancel(run_id=run_id)).body()
    world.bus.put(subjects.CANCEL, cancelled, keys.cancel(run_id))


# What is left in the end


async def check(world: World, course: Course) -> None:
    first, *_ = family = await world.family()
    assert [state.status for state in family] == [Status.DONE] * course.runs
    assert Counter(call.split(":")[-2] for call in world.gateway.executed) == course.ran
    assert [asked["kind"] for asked in world.bus.events(subjects.WAITING)] == list(course.asked)
    assert first.messages == course.said
    assert len(world.bus.events(subjects.ESCALATED)) == course.escalated
    assert len(world.bus.events(subjects.COMPLETED)) == course.runs
    assert {name: getattr(first.spent, name) for name in course.spent} == course.spent
    if course.brought is not None:
        assert {(record.status, record.summary) for record in first.completed} == {("ok", course.brought)}
    await check_that_all_is_told(world)


async def check_that_all_is_told(world: World) -> None:
    """Each call was made once, journals are whole and lead to the stored states, and nothing is left to be said."""
    assert set(world.gateway.executed.values()) <= {1}
    for state in await world.family():
        entries = await world.store.entries(state.run_id)
        assert flaw_in_chain(entries) is None
        assert [transition.state for _, transition in rehearse(entries)][-1] == state
        assert (state.given_up, state.pendings) == ((), ())
    world.faulty.write_told()
    assert await world.store.untold(100) == []


async def check_what_was_spent(world: World) -> None:
    """What is spent is what the journal's replies cost, what is lost is what crashes interrupted, and that is all."""
    for state in await world.family():
        story = story_of(await world.store.entries(state.run_id))
        every_paid_call_is_counted(story)
        what_was_set_aside_and_not_answered_is_lost_once(story)
    first, lost = await world.state(), world.interrupted
    assert world.mind.unreserved == []
    assert first.spent.lost_calls == lost
    if world.mind.reserve is not None:
        assert first.spent.lost_tokens == lost * world.mind.reserve.tokens
        assert sum(world.mind.calls.values()) <= first.spent.calls + lost


def story_of(entries: Sequence[Entry]) -> Story:
    """The journal as a story that the rules of the core can read."""
    story: Story = []
    for entry, transition in rehearse(entries):
        before = story[-1].transition.state if story else None
        story.append(Moment(before=before, event=entry.decoded(), transition=transition))
    return story
