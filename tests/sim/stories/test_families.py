"""Runs as steps or tasks of other runs, and results that barely identify their requests."""

import json
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any

import pytest

from schemas import subjects
from tests.sim.course import OF_CHILD, WRITER, Course, asks_for, line
from tests.sim.courses import COURSES
from tests.sim.invariants import FORGED
from tests.sim.machines.boundary import Frame
from tests.sim.model_policy import DONE, View, act, together
from tests.sim.servers.ductile import Job, Plugin
from tests.sim.world import World

CALL = {"goal": OF_CHILD}
SIDES = ("the left line", "the right line")


def family(view: View) -> dict[str, Any]:
    """The first run starts two others at once, each of these another, and those append a line."""
    if view.good:
        return DONE
    if view.goal.startswith("below"):
        return act("append.handle", n=1)
    goals = (f"below {view.goal}",) if view.goal in SIDES else SIDES
    return together(*(act("agent.run", goal=goal) for goal in goals))


def seeks_or_appends(view: View) -> dict[str, Any]:
    return DONE if view.good else act("append.handle" if view.goal.startswith("append") else "seek.handle", n=1)


FAMILY = Course(
    name="a family",
    chooses=family,
    own_requests=False,
    at_once=2,
    agent={"limits": {"max_depth": 2, "parallel_reads": 2}},
    ends=(subjects.COMPLETED,) * 5,
)
TASKS = Course(
    name="tasks that are runs",
    chooses=seeks_or_appends,
    plugins=WRITER
    | {
        "seek": Plugin(
            "read",
            asks_for(
                *({"id": name, "action": "plugin", "plugin": "agent", "input": f"append line {name}"} for name in "ab"),
                {"id": "c", "action": "plugin", "plugin": "agent", "input": "append line c", "depends_on": ["a", "b"]},
            ),
        ),
    },
    own_requests=False,
    at_once=3,
    agent={"limits": {"max_depth": 1}},
    ends=(subjects.COMPLETED,) * 4,
)


@pytest.mark.parametrize("course", [FAMILY, TASKS], ids=lambda course: course.name)
@pytest.mark.parametrize("dies_at", [None, 60, 120])
def test_families_end_alike_wherever_a_process_dies(course: Course, dies_at: int | None) -> None:
    with closing(World(course, dies_at=dies_at)) as world:
        world.play()
        assert sum(job.plugin == "append" for job in world.record.ran) == (2 if course is FAMILY else 3)


@pytest.mark.parametrize(("course", "step"), [(FAMILY, 24), (COURSES["several reads"], 8)], ids=["family", "reads"])
def test_a_cancel_at_any_point_ends_the_whole_family_which_asks_for_nothing_more(course: Course, step: int) -> None:
    for point in count(8, step):
        with closing(World(course)) as world:

            def cancels(_: object, world: World = world, point: int = point) -> bool:
                if len(world.boundary.effects) == point:
                    world.say(subjects.CANCEL, {"run_id": world.first}, "cancel")
                return False

            world.boundary.dies = cancels
            world.play_on()
            if world.record.endings[-1].subject == subjects.COMPLETED:
                break
    assert point > 30


def test_nobody_else_can_say_what_came_of_a_child() -> None:
    with closing(World(FAMILY)) as world:
        world.start()
        world.until(lambda: world.record.ran)
        forged = {
            "run_id": world.first,
            "step": 1,
            "tool": "agent",
            "attempt": 1,
            "status": "ok",
            "result": {"summary": FORGED},
            "completed_at": "2026-06-01T12:00:00Z",
        }
        world.say(subjects.TOOL_RESULT, forged, "forged")
        world.until(lambda: world.record.of(subjects.REJECTED))
        assert "counts for nothing" in world.record.of(subjects.REJECTED)[0].payload["reason"]
        world.until(lambda: len(world.record.endings) == len(FAMILY.ends))


@pytest.mark.parametrize("dies_at", [None, 12, 20])
def test_a_child_whose_row_is_damaged_is_lost_to_its_parent_which_asks_for_another(dies_at: int | None) -> None:
    slow = Plugin("read", line, takes_s=2.0)
    course = Course(
        name="a damaged child",
        chooses=lambda view: (
            DONE if view.good else act("read.handle" if view.goal == OF_CHILD else "agent.run", **CALL)
        ),
        plugins={"read": slow},
        own_requests=False,
        damaged=1,
        agent={"limits": {"max_depth": 1}},
        meanwhile=((1.5, partial(World.damage, which=1)),),
        ends=(subjects.COMPLETED,) * 2,
    )
    with closing(World(course, dies_at=dies_at)) as world:
        world.play()
        told = [one.payload["error"] for one in world.record.of(subjects.TOOL_RESULT) if one.payload["tool"] == "agent"]
        assert [error and error["class"] for error in told] == ["child_lost", None]


# Results that name no task


def asks_thrice(job: Job) -> dict[str, Any]:
    over = len(job.payload.get("evidence") or ())
    more = {"action": "retrieve", "query": f"page {over}"}
    return {"status": "ok", "result": "more", "continuation": more} if over < 3 else line(job)


def test_a_result_that_names_neither_its_task_nor_its_attempt_is_placed_by_its_dedupe_key() -> None:
    course = Course(
        name="three rounds",
        chooses=seeks_or_appends,
        plugins={"seek": Plugin("read", asks_thrice), "knowledge": Plugin("read", line)},
        at_once=3,
    )

    def heard(process: str, message: Frame) -> list[Frame]:
        if process == "agent" and message.subject == subjects.TOOL_RESULT:
            told = json.loads(message.body)
            told["payload"] |= {"attempt": None, "task": None, "round": None}
            message.body = json.dumps(told).encode()
        return [message]

    with closing(World(course)) as world:
        world.boundary.heard = heard
        world.play()
        assert len(world.record.ran) == 7
