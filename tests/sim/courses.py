"""Courses, one for each ability, with their endings without faults."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from schemas import subjects
from tests.sim.course import (
    READER,
    WRITER,
    Course,
    answers,
    appends,
    approves,
    asks_for,
    browses_and_appends,
    delegates,
    escalates_and_appends,
    fails_at_first,
    in_turn,
    line,
    raises,
    reads,
    reframes_once,
    rejects,
    reopens,
    settles,
)
from tests.sim.invariants import GO_ON, STOP
from tests.sim.model_policy import DONE, act, ask, together, wait
from tests.sim.servers.callers import (
    HOOK_SECRET,
    INGEST,
    INGRESS_DOOR,
    PEER,
    PEER_SECRET,
    RECEIVER,
    Post,
    by_ductile,
    by_standard,
)
from tests.sim.servers.ductile import Plugin
from tests.sim.world import World

Json = dict[str, Any]

TASKS: tuple[Json, ...] = (
    {"id": "a", "action": "plugin", "plugin": "read", "input": {"n": 1}},
    {"id": "b", "action": "plugin", "plugin": "read", "input": {"n": 2}},
    {"id": "c", "action": "plugin", "plugin": "append", "input": {"n": 3}, "depends_on": ["a", "b"]},
)
APPEND = act("append.handle", n=1)
QUICK = {"retry_base_s": 0.5}
BROWSING = WRITER | {"browse": Plugin("read", line, output="untrusted")}
POSTED = "what a caller wants"
HOOK: Json = {
    "scheme": "standard",
    "keys": [{"secret": HOOK_SECRET}],
    "events": {"*": {"to": subjects.START, "goal": "{/goal}"}},
}
PEERS: Json = {PEER: {"keys": [{"id": "v1", "secret": PEER_SECRET}], "accept": [subjects.START]}}
RELAYED: Json = {
    "event": {"type": subjects.START, "payload": {"goal": POSTED}},
    "origin": {"instance": PEER, "plugin": "core.relay", "job_id": "job-1", "event_id": "event-1"},
}
INGRESS: Json = {"host": INGRESS_DOOR, "port": 0}
CALLBACKS: Json = {
    "callbacks": {"secret": HOOK_SECRET, "network": {"allow_private": True, "allow_http": True, "ports": [8000]}}
}

TWO_RUNS = Course(
    name="two runs", chooses=reads(1), plugins=READER, runs=2, ends=(subjects.COMPLETED, subjects.COMPLETED)
)
_ALL = (
    Course(
        name="plain run",
        chooses=appends(2),
        plugins=WRITER | {"danger": Plugin("write", line)},
        forbidden=frozenset({"danger"}),
    ),
    Course(
        name="retries",
        chooses=in_turn(act("read.handle", n=1), DONE),
        plugins={"read": Plugin("read", fails_at_first)},
        agent={"limits": QUICK},
    ),
    Course(
        name="several reads",
        chooses=in_turn(together(*(act("read.handle", n=n) for n in (1, 2, 3))), DONE),
        plugins=READER,
        at_once=3,
        agent={"limits": {"parallel_reads": 3}},
    ),
    Course(
        name="approval", chooses=browses_and_appends, plugins=BROWSING, approved=frozenset({"append"}), reacts=approves
    ),
    Course(
        name="rejection", chooses=browses_and_appends, plugins=BROWSING, forbidden=frozenset({"append"}), reacts=rejects
    ),
    Course(name="question", chooses=in_turn(ask("Which?", "a", "b"), APPEND, DONE), reacts=answers),
    Course(name="wait", chooses=in_turn(APPEND, wait(2), act("append.handle", n=2), DONE)),
    Course(
        name="reopening",
        chooses=escalates_and_appends,
        endings=2,
        reacts=reopens,
        ends=(subjects.ESCALATED, subjects.COMPLETED),
    ),
    Course(
        name="continuation",
        chooses=in_turn(act("seek.handle"), DONE),
        plugins=WRITER | READER | {"seek": Plugin("read", asks_for(*TASKS))},
        at_once=3,
    ),
    Course(
        name="child",
        chooses=delegates,
        own_requests=False,
        agent={"limits": {"max_depth": 1}},
        ends=(subjects.COMPLETED, subjects.COMPLETED),
    ),
    Course(name="budget", chooses=appends(5), max_steps=2, constraints={"max_steps": 2}, ends=(subjects.ESCALATED,)),
    Course(name="tokens", chooses=appends(9), constraints={"max_tokens": 9000}, ends=(subjects.ESCALATED,)),
    Course(name="cancel", chooses=appends(5), meanwhile=((0.9, World.cancel_all),), ends=(subjects.CANCELLED,)),
    Course(
        name="in doubt",
        chooses=in_turn(act("deaf.handle", n=1), DONE),
        plugins={"deaf": Plugin("write", line, echoes=False)},
        endings=2,
        meanwhile=((0.5, World.lose_next_answer),),
        reacts=settles,
        lasts_s=150.0,
    ),
    Course(name="reframe", chooses=reframes_once),
    Course(
        name="pause",
        chooses=appends(2),
        endings=2,
        constraints={"max_steps": 1},
        agent={"limits": {"on_budget": "pause"}},
        reacts=raises,
        ends=(subjects.ESCALATED, subjects.COMPLETED),
    ),
    Course(
        name="cancelled child",
        chooses=delegates,
        plugins={"append": Plugin("write", line, takes_s=3.0)},
        own_requests=False,
        agent={"limits": {"max_depth": 1}},
        meanwhile=((2.0, World.cancel_first),),
        ends=(subjects.CANCELLED, subjects.CANCELLED),
    ),
    Course(
        name="late result",
        chooses=reads(1),
        plugins={"read": Plugin("read", line, first_takes_s=1.5)},
        gateway={"timeout_s": 1.0},
        agent={"limits": {"retry_base_s": 2.0}},
    ),
    Course(
        name="all said again", chooses=appends(2), meanwhile=((1.2, World.say_all_again), (3.0, World.say_all_again))
    ),
    Course(
        name="wake",
        runs=0,
        chooses=appends(1),
        posts=(Post(at_s=0.1, path="/v1/wake", body={"goal": POSTED, "wake_id": "w1"}),),
    ),
    Course(
        name="halt",
        chooses=appends(2),
        posts=(Post(at_s=0.8, path=STOP, body={}), Post(at_s=2.5, path=GO_ON, body={})),
    ),
    Course(
        name="retention",
        chooses=appends(1),
        agent={"keep_runs": {"done_days": 3}},
        meanwhile=((22.0, World.days_pass),),
        posts=(
            Post(at_s=23.0, path="/v1/prune", body={}),
            Post(at_s=24.0, path="/v1/runs", wanted=lambda status, told: status == 200 and not told["runs"]),
        ),
    ),
    Course(
        name="a damaged run",
        chooses=reads(1),
        plugins=READER,
        damaged=1,
        runs=2,
        meanwhile=((0.9, partial(World.damage, which=0)),),
    ),
    Course(
        name="restore",
        chooses=appends(2),
        endings=4,
        meanwhile=((0.8, World.back_up), (1.2, World.lose_all)),
        reacts=settles,
    ),
    Course(
        name="webhook",
        runs=0,
        chooses=appends(1),
        approved=frozenset({"append"}),
        reacts=approves,
        gateway={"ingress": INGRESS | {"webhooks": {"hook": HOOK}}},
        posts=(Post(at_s=0.1, path="/webhooks/hook", body={"goal": POSTED}, door=INGRESS_DOOR, signs=by_standard),),
    ),
    Course(
        name="relay",
        runs=0,
        chooses=appends(1),
        gateway={
            "ingress": INGRESS | {"peers": PEERS},
            "outbound": {"relay": {"url": "http://ductile", "secret": PEER_SECRET}},
        },
        posts=(Post(at_s=0.1, path=INGEST, body=RELAYED, door=INGRESS_DOOR, signs=by_ductile),),
        tells=1,
    ),
    Course(
        name="callback",
        chooses=appends(1),
        callback=f"http://{RECEIVER}:8000/hook",
        gateway={"outbound": CALLBACKS},
        tells=1,
    ),
    replace(TWO_RUNS, name="two agents", agents=2),
    replace(TWO_RUNS, name="two gateways", gateways=2),
    TWO_RUNS,
)
COURSES = {course.name: course for course in _ALL}


def mixed(names: Sequence[str]) -> Course:
    """Several courses at once on one agent; the model tells them apart by their goals."""
    chosen = tuple(COURSES[name] for name in names)
    by_goal = {goal: course.chooses for course in chosen for goal in course.goals}
    return Course(
        name="several at once",
        beside=chosen,
        chooses=lambda view: by_goal.get(view.goal, delegates)(view),
        plugins={name: plugin for course in chosen for name, plugin in course.plugins.items()},
        forbidden=frozenset().union(*(course.forbidden for course in chosen)),
        at_once=max(course.at_once for course in chosen),
        endings=3,
        own_requests=all(course.own_requests for course in chosen),
        reacts=lambda message: next((signal for course in chosen if (signal := course.reacts(message))), None),
        agent={"limits": {"parallel_reads": 3, "max_depth": 1, "retry_base_s": 0.5}},
        gateway={name: value for course in chosen for name, value in course.gateway.items()},
        tells=sum(course.tells for course in chosen),
        lasts_s=300.0,
    )
