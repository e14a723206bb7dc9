"""Courses, one for each ability, with their endings without faults."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from schemas import subjects
from tests.sim.course import (
    BROWSER,
    DEAF,
    READER,
    WRITER,
    Course,
    allowed,
    answers,
    appends,
    appends_waits_and_appends,
    approves,
    asks_and_appends,
    asks_for,
    browses_and_appends,
    delegates,
    escalates_and_appends,
    fails_at_first,
    line,
    raises,
    reads,
    reads_together,
    reframes_once,
    rejects,
    reopens,
    seeks,
    settles,
    until_it_is_known,
)
from tests.sim.invariants import GO_ON, STOP, Allowed
from tests.sim.model_policy import DONE, act
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

Json = dict[str, Any]

TASKS: tuple[Json, ...] = (
    {"id": "a", "action": "plugin", "plugin": "read", "input": {"n": 1}},
    {"id": "b", "action": "plugin", "plugin": "read", "input": {"n": 2}},
    {"id": "c", "action": "plugin", "plugin": "append", "input": {"n": 3}, "depends_on": ["a", "b"]},
)
QUICK = {"retry_base_s": 0.5}
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
    name="two runs",
    chooses=reads(1),
    plugins={"read": READER},
    allowed=allowed("read"),
    runs=2,
    ends=(subjects.COMPLETED, subjects.COMPLETED),
)
_ALL = (
    Course(name="plain run", chooses=appends(2), plugins={"append": WRITER}, allowed=allowed("append")),
    Course(
        name="retries",
        chooses=lambda view: DONE if view.good else act("read.handle", n=1),
        plugins={"read": Plugin({"handle": "read"}, fails_at_first)},
        allowed=allowed("read"),
        agent={"limits": QUICK},
    ),
    Course(
        name="several reads",
        chooses=reads_together,
        plugins={"read": READER},
        allowed=allowed("read", at_once=3),
        agent={"limits": {"parallel_reads": 3}},
    ),
    Course(
        name="approval",
        chooses=browses_and_appends,
        plugins={"append": WRITER, "browse": BROWSER},
        allowed=Allowed(
            calls=frozenset({"append/handle", "browse/handle"}),
            writes=frozenset({"append/handle"}),
            approved=frozenset({"append/handle"}),
        ),
        reacts=approves,
    ),
    Course(
        name="rejection",
        chooses=browses_and_appends,
        plugins={"append": WRITER, "browse": BROWSER},
        allowed=Allowed(calls=frozenset({"browse/handle"})),
        reacts=rejects,
    ),
    Course(
        name="question", chooses=asks_and_appends, plugins={"append": WRITER}, allowed=allowed("append"), reacts=answers
    ),
    Course(name="wait", chooses=appends_waits_and_appends, plugins={"append": WRITER}, allowed=allowed("append")),
    Course(
        name="reopening",
        chooses=escalates_and_appends,
        plugins={"append": WRITER},
        allowed=allowed("append", endings=2),
        reacts=reopens,
        ends=(subjects.ESCALATED, subjects.COMPLETED),
    ),
    Course(
        name="continuation",
        chooses=seeks,
        plugins={"seek": Plugin({"handle": "read"}, asks_for(*TASKS)), "read": READER, "append": WRITER},
        allowed=allowed("seek", "read", "append", at_once=3),
    ),
    Course(
        name="child",
        chooses=delegates,
        plugins={"append": WRITER},
        allowed=allowed("append", own_requests=False),
        agent={"limits": {"max_depth": 1}},
        ends=(subjects.COMPLETED, subjects.COMPLETED),
    ),
    Course(
        name="budget",
        chooses=appends(5),
        plugins={"append": WRITER},
        allowed=allowed("append", max_steps=2),
        constraints={"max_steps": 2},
        ends=(subjects.ESCALATED,),
    ),
    Course(
        name="tokens",
        chooses=appends(9),
        plugins={"append": WRITER},
        allowed=allowed("append", max_tokens=9000),
        constraints={"max_tokens": 9000},
        ends=(subjects.ESCALATED,),
    ),
    Course(
        name="a tool beside it",
        chooses=appends(1),
        plugins={"append": WRITER, "danger": WRITER},
        allowed=allowed("append"),
    ),
    Course(
        name="cancel",
        chooses=appends(5),
        plugins={"append": WRITER},
        allowed=allowed("append"),
        meanwhile=((0.9, "cancel_all"),),
        ends=(subjects.CANCELLED,),
    ),
    Course(
        name="in doubt",
        chooses=until_it_is_known,
        plugins={"deaf": DEAF},
        allowed=allowed("deaf", endings=2),
        meanwhile=((0.5, "lose_next_answer"),),
        reacts=settles,
        lasts_s=150.0,
    ),
    Course(
        name="reframe",
        chooses=reframes_once,
        plugins={"append": WRITER},
        allowed=allowed("append"),
    ),
    Course(
        name="pause",
        chooses=appends(2),
        plugins={"append": WRITER},
        allowed=allowed("append", endings=2),
        constraints={"max_steps": 1},
        agent={"limits": {"on_budget": "pause"}},
        reacts=raises,
        ends=(subjects.ESCALATED, subjects.COMPLETED),
    ),
    Course(
        name="cancelled child",
        chooses=delegates,
        plugins={"append": Plugin({"handle": "write"}, line, takes_s=3.0)},
        allowed=allowed("append", own_requests=False),
        agent={"limits": {"max_depth": 1}},
        meanwhile=((2.0, "cancel_first"),),
        ends=(subjects.CANCELLED, subjects.CANCELLED),
    ),
    Course(
        name="late result",
        chooses=reads(1),
        plugins={"read": Plugin({"handle": "read"}, line, first_takes_s=1.5)},
        allowed=allowed("read"),
        gateway={"timeout_s": 1.0},
        agent={"limits": {"retry_base_s": 2.0}},
    ),
    Course(
        name="all said again",
        chooses=appends(2),
        plugins={"append": WRITER},
        allowed=allowed("append"),
        meanwhile=((1.2, "say_all_again"), (3.0, "say_all_again")),
    ),
    Course(
        name="wake",
        runs=0,
        chooses=appends(1),
        plugins={"append": WRITER},
        allowed=allowed("append"),
        posts=(Post(at_s=0.1, path="/v1/wake", body={"goal": POSTED, "wake_id": "w1"}),),
    ),
    Course(
        name="halt",
        chooses=appends(2),
        plugins={"append": WRITER},
        allowed=allowed("append"),
        posts=(Post(at_s=0.8, path=STOP, body={}), Post(at_s=2.5, path=GO_ON, body={})),
    ),
    Course(
        name="retention",
        chooses=appends(1),
        plugins={"append": WRITER},
        allowed=allowed("append"),
        agent={"keep_runs": {"done_days": 3}},
        meanwhile=((22.0, "days_pass"),),
        posts=(
            Post(at_s=23.0, path="/v1/prune", body={}),
            Post(at_s=24.0, path="/v1/runs", wanted=lambda status, told: status == 200 and not told["runs"]),
        ),
    ),
    Course(
        name="a damaged run",
        chooses=reads(1),
        plugins={"read": READER},
        allowed=allowed("read", damaged=1),
        runs=2,
        meanwhile=((0.9, "damage_first"),),
    ),
    Course(
        name="restore",
        chooses=appends(2),
        plugins={"append": WRITER},
        allowed=allowed("append", endings=4),
        meanwhile=((0.8, "back_up"), (1.2, "lose_all")),
        reacts=settles,
    ),
    Course(
        name="webhook",
        runs=0,
        chooses=appends(1),
        plugins={"append": WRITER},
        allowed=allowed("append", approved=frozenset({"append/handle"})),
        reacts=approves,
        gateway={"ingress": INGRESS | {"webhooks": {"hook": HOOK}}},
        posts=(Post(at_s=0.1, path="/webhooks/hook", body={"goal": POSTED}, door=INGRESS_DOOR, signs=by_standard),),
    ),
    Course(
        name="relay",
        runs=0,
        chooses=appends(1),
        plugins={"append": WRITER},
        allowed=allowed("append"),
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
        plugins={"append": WRITER},
        allowed=allowed("append"),
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
        allowed=Allowed(
            calls=frozenset().union(*(course.allowed.calls for course in chosen)),
            writes=frozenset().union(*(course.allowed.writes for course in chosen)),
            at_once=max(course.allowed.at_once for course in chosen),
            endings=3,
            own_requests=all(course.allowed.own_requests for course in chosen),
        ),
        reacts=lambda message: next((signal for course in chosen if (signal := course.reacts(message))), None),
        agent={"limits": {"parallel_reads": 3, "max_depth": 1, "retry_base_s": 0.5}},
        gateway={name: value for course in chosen for name, value in course.gateway.items()},
        tells=sum(course.tells for course in chosen),
        lasts_s=300.0,
    )
