"""Runs in words: events as text, one after another, separated by `;`.

An event is a word of WORDS with values (JSON, or plain text; `x*500` repeats, `+3h` is an instant), `3x` before it
repeats it (`$n` counts). `name: event` happens to another run: one that `born name` made of a child that was started.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from schemas.catalog import ToolCommand, ToolOffer
from tests.core import cues
from tests.core.script import NOON, Cue, Script

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PARENT = 'run planning max_depth=1 parallel_reads=4 ; agents "find a name"'
"""A run that waits for a child."""
STEP = "go number=$n ; return"
STAGES = ("queued", "framing", "planning", "waiting", "reflecting")


class Play:
    """The runs of one case. The unnamed one is the first; `last` had the last event. `words`: more of them, each a
    line of events; values behind it are added to its `run`. `pace`: seconds before each event."""

    def __init__(self, words: dict[str, str], pace: float = 0.0) -> None:
        self.words, self.pace = words, pace
        self.skills: tuple[ToolOffer, ...] = cues.EVERY_TOOL
        self.runs: dict[str, Script] = {"": Script()}
        self.last = ""

    @property
    def run(self) -> Script:
        return self.runs[self.last]

    def branch(self) -> "Play":
        other = Play(self.words, self.pace)
        other.skills, other.last = self.skills, self.last
        other.runs = {name: run.branch() for name, run in self.runs.items()}
        return other

    def feed(self, line: str, *, quiet: bool = False) -> None:
        """Raises ValueError for an event that is ignored where it is to be `quiet`."""
        for event in self._events(line):
            self._happens(event)
            story = self.run.story
            if quiet and story and story[-1].transition.ignored:
                raise ValueError(f"{event!r} is ignored: {story[-1].transition.ignored}")

    def _events(self, line: str) -> Iterator[str]:
        for part in split(line, ";"):
            found = re.fullmatch(r"(?:(\d+)x )?(?:(\w+): )?(.*)", part)
            assert found
            times, actor, event = found.groups()
            for number in range(int(times or 1)):
                yield from (f"{actor or ''}: {one}".replace("$n", str(number)) for one in self._meant(event))

    def _meant(self, event: str) -> Iterator[str]:
        """The events of one of `words`."""
        word, _, more = event.partition(" ")
        if word not in self.words:
            yield event
            return
        events = split(self.words[word], ";")
        begins = next((place for place, one in enumerate(events) if one.startswith("run ")), 0)
        events[begins] = f"{events[begins]} {more}".strip()
        for one in events:
            yield from self._meant(one)

    def _happens(self, event: str) -> None:
        self.last, _, text = event.partition(": ")
        word, plain, named = parsed(text)
        if word in STAGED:
            STAGED[word](self, *plain, **named)
        else:
            self.runs[self.last] = self.run.wait(seconds=self.pace) >> WORDS[word](*plain, **named)


def run_at(line: str, of: str = "", *, pace: float = 0.0, **words: str) -> Script:
    """The run (or its child `of` that name) at the end of a line, such as `run waiting post ; error in_doubt`."""
    play = Play(words, pace)
    play.feed(line)
    return play.runs[of]


def parsed(event: str) -> tuple[str, list[Any], dict[str, Any]]:
    """A word and its values, named ones apart."""
    word, *values = split(event, " ")
    named = dict(value.split("=", 1) for value in values if re.match(r"[\w.-]+=", value))
    plain = [value_of(value) for value in values if not re.match(r"[\w.-]+=", value)]
    return word, plain, {name: value_of(value) for name, value in named.items()}


def split(text: str, by: str) -> list[str]:
    """Parts between `by` outside of quotes and brackets."""
    parts, depth, quoted = [""], 0, False
    for place, sign in enumerate(text):
        quoted ^= sign == '"' and text[place - 1 : place] != "\\"
        depth += 0 if quoted else (sign in "[{") - (sign in "]}")
        if sign == by and not quoted and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def value_of(text: str) -> Any:
    times = re.fullmatch(r"(.+)\*(\d+)", text, re.DOTALL)
    if times:
        return value_of(times[1]) * int(times[2])
    if re.fullmatch(r"\+[\d.]+[smhd]", text):
        return NOON + duration(text[1:])
    try:
        return json.loads(text)
    except ValueError:
        return text


def duration(text: str) -> timedelta:
    return timedelta(seconds=float(text[:-1]) * UNITS[text[-1]])


# Words that are about the case, and not events


def _run(play: Play, stage: str, tool: str = "fetch", **details: Any) -> None:
    """A run at `stage`; `details` belong to its wake."""
    play.runs[play.last] = cues.queued(**details)
    for cue in (cues.started(play.skills), cues.frames(), cues.plans(tool), cues.returns())[: STAGES.index(stage)]:
        play.runs[play.last] = play.run >> cue


def _offer(play: Play, name: str, output: Any = "trusted", says: Any = None, **command: Any) -> None:
    """One more tool, with one command; `says` is its output."""
    more = {field: command.pop(field) for field in ("route", "continues", "echoes_capability") if field in command}
    does = ToolCommand(name="handle", output=says, **({"tier": "read"} | command))
    offer = ToolOffer(name=name, output=output, commands=(does,), **({"route": name} | more))
    play.skills = (*(skill for skill in play.skills if skill.name != name), offer)


def _born(play: Play, name: str, number: int = 0, *, bare: bool = False) -> None:
    """Run `name` is a child that was just started, ready to plan; a `bare` one has only begun."""
    play.runs[name] = cues.child_of(play.run, number, play.skills, bare=bare)


def _home(play: Play, name: str) -> None:
    play.runs[play.last] = play.run.wait(seconds=play.pace) >> cues.comes_home(play.runs[name])


def _wait(play: Play, span: str) -> None:
    play.run.now += duration(span)


def _again(play: Play) -> None:
    play.runs[play.last] = play.run >> play.run.story[-1].event


STAGED: dict[str, Callable[..., None]] = {
    "run": _run,
    "offer": _offer,
    "born": _born,
    "home": _home,
    "wait": _wait,
    "again": _again,
}


WORDS: dict[str, Callable[..., Cue]] = {
    "wake": cues.wake,
    "start": lambda *names: cues.started(tool for tool in cues.EVERY_TOOL if tool.name in names or not names),
    "frame": cues.frames,
    "plan": cues.plans,
    "many": lambda *tools, **arguments: cues.replies(cues.several(*tools, **arguments)),
    "go": cues.goes_on,
    "reflect": cues.reflects,
    "done": cues.done,
    "claim": cues.claims,
    "find": cues.finds,
    "garble": cues.garbles,
    "digest": cues.digests,
    "refuse": cues.refuses,
    "ask": cues.asks_a_person,
    "rest": cues.rests,
    "agents": cues.asks_agents,
    "reserve": cues.reserves,
    "unavailable": cues.unavailable,
    "too-long": lambda: cues.unavailable("shrink", error_class="prompt_too_long", message="413"),
    "return": cues.returns,
    "error": cues.errs,
    "unreadable": cues.garbled,
    "come": cues.comes,
    "fail": cues.fails,
    "continue": cues.continues,
    "want": cues.wants,
    "nameless": cues.nameless,
    "signal": cues.signal,
    "message": lambda text, **more: cues.signal("message", message=text, **more),
    "answer": cues.answer,
    "approve": cues.approves,
    "reject": cues.rejects,
    "raise": lambda **more: cues.signal("raise_budget", **more),
    "resume": lambda: cues.signal("resume"),
    "cancel": cues.cancel,
    "break": cues.breaks,
    "still": cues.extend_deadline,
    "due": lambda: cues.due,
    "early": lambda: cues.too_early,
}


def a_run_of(steps: int, *, length: int = 500, **details: Any) -> Script:
    """A run after `steps` steps with results of `length` characters, whose notes are compacted as needed.

    It waits for the reflection on its newest step, or for a digest before it.
    """
    script = cues.queued(**({"max_steps": 300, "max_attempts_of_run": 300} | details)) >> cues.started()
    script = script >> cues.frames() >> cues.plans() >> cues.returns()
    for number in range(2, steps + 1):
        if script.outcomes == ("ask compact",):
            script = script >> cues.digests(*(f"fact {n}, known at step {number}" for n in range(30)))
        script = script >> cues.goes_on(number=number) >> cues.returns(output=page(number, length))
    return script


def a_compacting_run(**details: Any) -> Script:
    """A run after eight steps that asks for a digest, because its notes are too long."""
    return a_run_of(8, **({"max_notes": 2000} | details))


def page(number: int, length: int = 500) -> dict[str, Any]:
    return {"summary": f"page {number}: {'x' * length}"}
