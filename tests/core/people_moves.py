"""The moves of random stories in which people, or waits for them, take part."""

from functools import partial

from agent_service.core.events import Event
from tests.core.cues import (
    answer,
    approves,
    asks_a_person,
    cancel,
    due,
    made,
    plan,
    reflection,
    rejects,
    replies,
    resume,
    returns,
    signal,
    too_early,
    waits,
)
from tests.core.going_on import Move, answers, reopens, timer
from tests.core.script import Cue, Script


def unheard(script: Script) -> Event:
    """A reply to a prompt that was made before people said anything."""
    return made(partial(answers, heard=0), script)


def insists(script: Script) -> Event:
    """The model plans again what was planned last, whatever people made of it."""
    asking, planned = script.state.asking, script.state.plan or plan("post")
    reflecting = asking is not None and asking.phase == "reflect"
    return made(replies(reflection("continue"), plan=planned) if reflecting else replies(planned), script)


def late(cue: Move, **duration: float) -> Move:
    return lambda script: cue(script.wait(**duration))


HELLO = signal("message", message="hello")
TURNS_TO_PEOPLE: list[Cue] = [*[insists] * 4, *[asks_a_person()] * 4, *[waits()] * 4, replies(plan("browse")), unheard]
ODD_WITH_PEOPLE: dict[str, list[Cue]] = {
    "frame": [*[asks_a_person()] * 3, unheard],
    "plan": [*TURNS_TO_PEOPLE, *[unheard] * 3],
    "reflect": [
        *TURNS_TO_PEOPLE,
        *[replies(reflection("continue"), plan=plan("browse"))] * 2,
        *[replies(reflection("done"), heard=0)] * 3,
        replies(reflection("escalate"), heard=0),
        replies(reflection("reframe"), heard=0),
    ],
    "for_time": [
        *[HELLO] * 3,
        *[late(partial(made, HELLO), hours=2)] * 2,
        resume(),
        cancel(),
        returns(step=7),
        late(timer, hours=1),
        *[due] * 3,
        too_early,
    ],
    "for_approval": [
        *[rejects()] * 2,
        *[due] * 3,
        *[HELLO] * 2,
        *[signal("message", message="not that")] * 2,
        approves(arguments_hash="0" * 32),
        late(partial(made, approves()), hours=2),
        answer(),
        returns(step=9),
        cancel(),
        resume(),
        signal("raise_budget", max_steps=3),
    ],
    "for_answer": [
        *[HELLO] * 2,
        *[due] * 4,
        late(partial(made, answer()), hours=2),
        approves(),
        answer(None),
        returns(step=9),
        cancel(),
    ],
    "for_person": [*[late(partial(made, resume()), hours=2)] * 3, answer(), reopens],
    "ended": [*[answer()] * 2, answer("it ran", outcome="ran"), answer("no", outcome="did_not_run"), HELLO],
}
"""What may come besides, by where the run stands."""
