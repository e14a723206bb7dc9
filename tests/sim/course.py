"""A course and its building blocks: answers of tools, choices of models, messages of people."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas import subjects
from tests.sim.model_policy import DONE, ESCALATE, LINE, REFRAME, Chooses, View, act
from tests.sim.record import Message
from tests.sim.servers.callers import Post
from tests.sim.servers.ductile import Job, Plugin

Json = dict[str, Any]
Reaction = Callable[[Message], Json | None]
"""Returns the signal of a person who reads `agent.waiting` or an ending, or None."""


# Tools


def line(job: Job) -> Json:
    return {"status": "ok", "result": f"{LINE}{job.payload.get('n', '')}"}


def fails_at_first(job: Job) -> Json:
    return {"status": "error", "error": "not now", "retry": True} if job.call.endswith(":1") else line(job)


def asks_for(*tasks: Json) -> Callable[[Job], Json]:
    def plays(job: Job) -> Json:
        if job.payload.get("evidence") is not None:
            return line(job)
        return {"status": "ok", "result": "more", "continuation": {"action": "multi-step", "tasks": list(tasks)}}

    return plays


WRITER = {"append": Plugin("write", line)}
READER = {"read": Plugin("read", line)}


@dataclass(frozen=True, kw_only=True)
class Course:
    name: str
    """Part of the goals of its runs."""
    chooses: Chooses
    plugins: Mapping[str, Plugin] = field(default_factory=WRITER.copy)
    forbidden: frozenset[str] = frozenset()
    approved: frozenset[str] = frozenset()
    """Plugins that run only after a person approved their arguments."""
    runs: int = 1
    constraints: Json = field(default_factory=dict)
    at_once: int = 1
    """Maximum of a run's requests in progress."""
    max_steps: int = 10
    endings: int = 1
    """Maximum per run: more than one if people reopen it."""
    damaged: int = 0
    """Runs whose rows the disk damages: they stop."""
    own_requests: bool = True
    """False if its runs start others."""
    callback: str = ""
    beside: tuple["Course", ...] = ()
    """Courses whose runs it includes."""
    reacts: Reaction = lambda _: None
    agent: Json = field(default_factory=dict)
    gateway: Json = field(default_factory=dict)
    """Settings beyond those of the world."""
    posts: tuple[Post, ...] = ()
    tells: int = 0
    """Number of endings that receivers must get."""
    meanwhile: tuple[tuple[float, Callable[[Any], object]], ...] = ()
    """Virtual second, and what then happens to the world."""
    ends: tuple[str, ...] = (subjects.COMPLETED,)
    """Endings of the runs without faults, in any order."""
    lasts_s: float = 60.0
    """Virtual seconds until its end, deaths included."""
    gateways: int = 1
    agents: int = 1

    @property
    def goals(self) -> list[str]:
        return [f"the course {self.name}, run {number}" for number in range(1, self.runs + 1)]

    @property
    def starts(self) -> list[Json]:
        more: Json = {"constraints": self.constraints} if self.constraints else {}
        more |= {"callback": self.callback} if self.callback else {}
        ours = [{"goal": goal, **more} for goal in self.goals] if not self.beside else []
        return [*ours, *(start for course in self.beside for start in course.starts)]


# What models choose


def in_turn(*decisions: Json) -> Chooses:
    """One after another: the next follows a good step, a person's message, or a wait."""

    def chooses(view: View) -> Json:
        passed = len(view.good) + len(view.said) + ("it is too early" in view.text)
        return decisions[min(passed, len(decisions) - 1)]

    return chooses


def appends(times: int) -> Chooses:
    return lambda view: act("append.handle", n=len(view.steps) + 1) if len(view.good) < times else DONE


def reads(times: int) -> Chooses:
    """For several concurrent runs: an interrupted write beside another of its tool is in doubt and needs a person."""
    return lambda view: act("read.handle", n=len(view.steps) + 1) if len(view.good) < times else DONE


def browses_and_appends(view: View) -> Json:
    if not view.steps:
        return act("browse.handle")
    written = any(step.tool == "append" for step in view.steps)
    return DONE if written or "rejected" in view.text else act("append.handle", n=2)


def escalates_and_appends(view: View) -> Json:
    if not view.good:
        return act("append.handle", n=1)
    return DONE if view.said else ESCALATE


OF_CHILD = "append a line for another run"


def delegates(view: View) -> Json:
    if view.goal == OF_CHILD:
        return DONE if view.good else act("append.handle", n=1)
    return DONE if len(view.good) >= 1 else act("agent.run", goal=OF_CHILD)


def reframes_once(view: View) -> Json:
    if not view.good or len(view.good) == 2:
        return DONE if view.good else act("append.handle", n=1)
    return act("append.handle", n=2) if view.frames or "d4" in view.items else REFRAME


# What people say


def approves(told: Message) -> Json | None:
    name = told.payload.get("arguments_hash")
    return {"signal_id": f"yes-{name}", "kind": "approve", "arguments_hash": name} if name else None


def rejects(told: Message) -> Json | None:
    said = approves(told)
    return {**said, "kind": "reject", "message": "rejected: not now"} if said else None


def answers(told: Message) -> Json | None:
    said = {"signal_id": "answer", "kind": "answer", "message": "take a"}
    return {**said, "question_hash": told.payload["question_hash"]} if told.payload.get("question") else None


def reopens(told: Message) -> Json | None:
    is_over = told.subject == subjects.ESCALATED
    return {"signal_id": "reopen", "kind": "answer", "message": "go on"} if is_over else None


def settles(told: Message) -> Json | None:
    if told.payload.get("kind") != "in_doubt":
        return None
    name, seen = f"ran-{told.payload.get('step')}", f"I looked: {LINE}1 is there"
    return {"signal_id": name, "kind": "answer", "outcome": "ran", "message": seen}


def raises(told: Message) -> Json | None:
    is_spent = told.payload.get("kind") == "budget"
    return {"signal_id": "more", "kind": "raise_budget", "constraints": {"max_steps": 6}} if is_spent else None
