"""Bugs sown at the program's boundary: its messages, requests and commits are changed as a faulty program would.

Each bug names rules, must break one of them within a number of schedules, and names a course that shows it.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from schemas import keys, subjects
from tests.sim.courses import COURSES
from tests.sim.deaths import Deaths
from tests.sim.invariants import FORGED, SECRET
from tests.sim.machines.boundary import Frame
from tests.sim.servers.streams import head_of, headers_of
from tests.sim.world import World

Json = dict[str, Any]
STRANDED, ENDING, TWICE, AGAIN = (
    "nothing accepted is stranded",
    "exactly one ending",
    "no write runs twice",
    "no finished step runs again",
)
ONE_ID, ONE_WAY, NAMED = "an id names one message", "a run is told in one way", "what is said again keeps its id"
ASKED, DONE, ANSWERED = "what runs was asked for", "what is said to be done was done", "every request is answered"
PAID, BUDGET, OVER = "no model call is paid twice", "budgets are never passed", "an end is the end"
BELIEVED, WORD, APPROVED = (
    "results are believed only when authenticated",
    "a person's word is never lost",
    "a write that needs a person waits for one",
)
ALLOWED, SECRETS = "only what is allowed runs", "secrets stay inside"
PROMISED, STILL = "what a caller is told is so", "while all stands still nothing begins"
ACCEPTED, WAKE, ONE_AT_A_TIME = "every run was accepted", "one wake is one run", "one action at a time"


@dataclass(frozen=True)
class Bug:
    what: str
    breaks: tuple[str, ...]
    sow: Callable[[World], None]
    course: str = "plain run"


def found(bug: Bug) -> tuple[int, str]:
    """Returns the number of schedules played and the broken rule. Tries a death at each point, and last none."""
    with closing(World(COURSES[bug.course])) as world:
        bug.sow(world)
        played = list(Deaths(world, to_the_first=True).play())
        return len(played), next((one.rule for one in played if one.rule), "")


# Ways to change what passes. A change returns the messages that pass in place of one.

Change = Callable[[World, Frame], list[Frame]]
Sow = Callable[[World], None]


def _passing(hook: str, change: Change, *kinds: str, by: str = "agent") -> Sow:
    """Changes what processes whose names begin with `by` publish (`said`) on subjects that begin with `kinds`, or what
    they are handed of streams (`heard`)."""

    def sow(world: World) -> None:
        def passes(process: str, message: Frame) -> list[Frame]:
            ours = process.startswith(by) and message.subject.startswith(kinds)
            ours = ours and (hook == "said" or message.reply.startswith("$JS.ACK"))
            return change(world, message) if ours else [message]

        setattr(world.boundary, hook, passes)

    return sow


says, hears = partial(_passing, "said"), partial(_passing, "heard")


def payload(**fields: Any) -> Change:
    def change(_: World, message: Frame) -> list[Frame]:
        told = json.loads(message.body)
        told["payload"] |= {
            name: value(told["payload"]) if callable(value) else value for name, value in fields.items()
        }
        return [replace(message, body=json.dumps(told).encode())]

    return change


def other_id() -> Change:
    numbers = count()

    def change(_: World, message: Frame) -> list[Frame]:
        name = f"{headers_of(message.head).get('Nats-Msg-Id')}-{next(numbers)}"
        return [replace(message, head=with_id(message, name))]

    return change


def and_dies(then: Change) -> Change:
    """The agent dies soon after the first of them, and says it again before a person answers."""
    deaths = iter((True,))

    def change(world: World, message: Frame) -> list[Frame]:
        if next(deaths, False):
            world.scheduler.after(0.05, lambda: world._kill(world.services.processes["agent"]))
        return then(world, message)

    return change


def with_id(message: Frame, name: str) -> bytes:
    return head_of(headers_of(message.head) | {"Nats-Msg-Id": name})


def dropped(_: World, __: Frame) -> list[Frame]:
    return []


def and_once_more(then: Change) -> Change:
    """Adds a changed message under another id."""
    renamed = other_id()
    return lambda world, message: [
        message,
        *(again for one in then(world, message) for again in renamed(world, replace(one, reply=""))),
    ]


def settled(world: World, message: Frame) -> list[Frame]:
    world.bus.publish(Frame(message.reply, b"+ACK"))
    return [message]


def settled_unseen(world: World, message: Frame) -> list[Frame]:
    return settled(world, message)[1:]


def after_commits(statement: str, *, by: str) -> Sow:
    def sow(world: World) -> None:
        def committed(process: str, connection: sqlite3.Connection) -> None:
            if process.startswith(by):
                connection.execute(statement)

        world.boundary.committed = committed

    return sow


def commits_lost(which: int) -> Sow:
    def sow(world: World) -> None:
        done = Counter[str]()

        def keeps(process: str) -> bool:
            done[process] += process.startswith("agent")
            return done[process] != which

        world.boundary.keeps = keeps

    return sow


def sends(change: Callable[[bytes], list[bytes]], *, by: str = "gateway") -> Sow:
    def sow(world: World) -> None:
        world.boundary.asks = lambda process, data: change(data) if process.startswith(by) else [data]

    return sow


def with_other_words(before: bytes, after: bytes) -> Callable[[bytes], list[bytes]]:
    """Both have the same length, because the head states it."""
    assert len(before) == len(after)
    return lambda data: [data.replace(before, after)]


def replies_thrown_away(world: World) -> None:
    replies = count()

    def receives(process: str, data: bytes) -> bytes | None:
        is_reply = process.startswith("agent") and b"chat.completion" in data
        return None if is_reply and next(replies) == 1 else data

    world.boundary.receives = receives


def answers_unsaid(world: World, message: Frame) -> list[Frame]:
    """Accepts webhooks as if the bus had stored them."""
    world.bus.hand_out(message.reply, json.dumps({"stream": subjects.STREAM_STARTS, "seq": 1}).encode())
    return []


def made_up_results(world: World, message: Frame) -> list[Frame]:
    asked = json.loads(message.body)
    told = {name: asked["payload"][name] for name in ("run_id", "step", "tool", "attempt")}
    told |= {"status": "ok", "result": {"summary": "line 1"}, "completed_at": "2026-06-01T12:00:01Z"}
    key = keys.result(told["run_id"], told["step"], told["attempt"])
    body = {**asked, "type": subjects.TOOL_RESULT, "payload": told, "dedupe_key": key}
    world.bus.publish(Frame(subjects.TOOL_RESULT, json.dumps(body).encode(), "", with_id(message, key)))
    return settled_unseen(world, message)


def asks_while_halted(world: World, message: Frame) -> list[Frame]:
    if world.invariants.halted_at is not None:
        newest = world.record.requests[-1]
        told = {"type": subjects.TOOL_REQUEST, "payload": newest.payload | {"step": newest.payload["step"] + 1}}
        world.bus.publish(Frame(newest.subject, json.dumps(told).encode(), "", head_of({"Nats-Msg-Id": "early"})))
    return [message]


def taint_unheard(world: World) -> None:
    def heard(process: str, message: Frame) -> list[Frame]:
        trusted = message.body.replace(b'"untrusted"', b'"trusted"') if process.startswith("agent") else message.body
        return [replace(message, body=trusted)]

    world.boundary.heard = heard


def on(subject: str, **fields: Any) -> Change:
    return lambda world, message: [replace(one, subject=subject) for one in payload(**fields)(world, message)]


LOST = (STRANDED, PAID, ENDING, ONE_WAY, NAMED, ONE_ID, AGAIN)

BUGS = (
    # ids and repetitions
    Bug("an ending has another id each time it is said", (ENDING, NAMED), says(other_id(), *subjects.ENDINGS)),
    Bug("a request has another id each time", (NAMED,), says(other_id(), subjects.TOOL_REQUEST)),
    Bug("progress has another id each time", (NAMED,), says(other_id(), subjects.PROGRESS)),
    Bug("an acceptance has another id each time", (NAMED,), says(other_id(), subjects.WAKE_ACCEPTED)),
    Bug("a result has another id each time", (NAMED,), says(other_id(), subjects.TOOL_RESULT, by="gateway")),
    Bug("a question has another id each time", (NAMED,), says(and_dies(other_id()), subjects.WAITING), "question"),
    Bug(
        "a request of another step has an id that was used",
        (ONE_ID, NAMED, STRANDED),
        says(lambda _, m: [replace(m, head=with_id(m, "same"))], subjects.TOOL_REQUEST),
    ),
    Bug(
        "a run is accepted under two names",
        (WAKE,),
        says(and_once_more(payload(run_id="run_other")), subjects.WAKE_ACCEPTED),
    ),
    # what is over
    Bug(
        "a step is asked for after the end",
        (OVER, ONE_AT_A_TIME),
        says(
            and_once_more(on(f"{subjects.TOOL_REQUEST}.append", step=9, tool="append", attempt=1)), subjects.COMPLETED
        ),
    ),
    Bug(
        "two steps are asked for at once",
        (ONE_AT_A_TIME,),
        says(and_once_more(payload(step=lambda told: told["step"] + 1)), subjects.TOOL_REQUEST),
    ),
    Bug("the run ends in two ways", (ENDING,), says(and_once_more(on(subjects.FAILED)), subjects.COMPLETED)),
    Bug(
        "progress of the same moment is told in two ways",
        (ONE_WAY, NAMED),
        says(and_once_more(payload(summary="otherwise")), subjects.PROGRESS),
    ),
    # budgets
    Bug("the most steps of a run are not heard", (BUDGET,), hears(payload(constraints={}), subjects.START), "budget"),
    Bug("the most tokens of a run are not heard", (BUDGET,), hears(payload(constraints={}), subjects.START), "tokens"),
    # acknowledged too early, or lost
    Bug("a start is acknowledged before it is stored", (STRANDED,), hears(settled, subjects.START)),
    Bug(
        "a signal is acknowledged and not looked at",
        (WORD, STRANDED),
        hears(settled_unseen, subjects.SIGNAL),
        "question",
    ),
    Bug("a cancel is acknowledged and not looked at", (STRANDED,), hears(settled_unseen, subjects.CANCEL), "cancel"),
    Bug("queued turns are never taken up", (STRANDED,), hears(dropped, subjects.TURN), "two agents"),
    Bug("an acceptance is never said", (ACCEPTED, STRANDED), says(dropped, subjects.WAKE_ACCEPTED)),
    Bug("results are never said", (STRANDED, ANSWERED), says(dropped, subjects.TOOL_RESULT, by="gateway")),
    # the store
    Bug("a commit of the agent is lost", LOST, commits_lost(4)),
    Bug("timers are not kept", (STRANDED,), after_commits("UPDATE runs SET due_at = NULL", by="agent"), "wait"),
    Bug(
        "all is marked as done before it is",
        (STRANDED, ACCEPTED),
        after_commits("UPDATE runs SET dispatched = version", by="agent"),
    ),
    Bug(
        "no run is known by its wake",
        (WAKE, STRANDED, ENDING),
        after_commits("UPDATE runs SET wake_id = run_id || wake_id WHERE wake_id NOT LIKE 'run%'", by="agent"),
    ),
    Bug("the gateway forgets its calls", (TWICE,), after_commits("DELETE FROM rows WHERE kind = 'call'", by="gateway")),
    # writes
    Bug("a job is started under another call", (ASKED,), sends(with_other_words(b":append:1", b":append:7"))),
    Bug(
        "a tool is called that is not allowed",
        (ALLOWED,),
        sends(with_other_words(b"/plugin/append/", b"/plugin/danger/")),
    ),
    Bug(
        "a result tells of what was not done",
        (DONE, STRANDED),
        hears(made_up_results, subjects.TOOL_REQUEST, by="gateway"),
    ),
    # callers
    Bug("a wake is answered that is not stored", (PROMISED, STRANDED), commits_lost(1), "wake"),
    Bug(
        "an event is answered that the bus has not",
        (PROMISED, STRANDED),
        says(answers_unsaid, subjects.START, by="gateway"),
        "webhook",
    ),
    Bug(
        "a result is followed by a step while all stands still",
        (STILL, NAMED),
        hears(asks_while_halted, subjects.TOOL_RESULT),
        "halt",
    ),
    Bug(
        "what is to be told to others is forgotten",
        (STRANDED,),
        after_commits("DELETE FROM rows WHERE kind = 'notification'", by="gateway"),
        "callback",
    ),
    Bug(
        "a tool is given other arguments",
        (ASKED,),
        hears(payload(tool_payload={"n": 99}), subjects.TOOL_REQUEST, by="gateway"),
    ),
    # people
    Bug("untrusted content is taken for the operator's own", (APPROVED,), taint_unheard, "approval"),
    # strangers, secrets, models
    Bug(
        "a stranger's result is believed",
        (BELIEVED,),
        says(payload(result={"summary": FORGED}), subjects.TOOL_RESULT, by="gateway"),
    ),
    Bug("a secret is told", (SECRETS,), says(payload(summary=SECRET), subjects.PROGRESS)),
    Bug(
        "a secret is sent to the model",
        (SECRETS,),
        sends(with_other_words(b"You decide what an ag", SECRET.encode()), by="agent"),
    ),
    Bug("a paid reply is thrown away", (PAID,), replies_thrown_away),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_a_sown_bug_breaks_a_rule(bug: Bug) -> None:
    _, rule = found(bug)
    assert rule in bug.breaks
