"""Transcripts in `transcripts/*.txt`, one file for each ability: what happens to a run and what it asks for then.

    :: asked = run planning ; ask              a word of one file; values behind it are added to its `run`
    # a second answer changes nothing          a case begins: a new run
    .. asked ; answer "the new one"            events whose effects are not shown; none of them may be ignored
    >> answer "the old one" << ignored: …      events, and what the last one led to, in the words of `script.led_to`
    << …                                       the same, in lines of its own where it is long
    == messages, due: 1: the new one · +2s     facts of the run, by their names in FACTS
    | answer x << ignored: …                   a row: events from here, what the last one led to; undone afterwards

Events are those of `words`. `pytest --update` renews the outcomes; then read the difference.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from agent_service.core.facts import RunReopened
from agent_service.core.state import Note, RunState
from agent_service.run import messages
from agent_service.run.human_tasks import remedy
from schemas import subjects
from tests.core.script import Script, compact, instant, led_to, named, rest_of
from tests.core.words import Play
from tests.kit.golden import Golden

ROW = 90
"""Characters of an effect that a row shows."""
WIDTH = 140

# Facts


def _spent(state: RunState) -> str:
    spent = state.spent
    cost = "unknown" if spent.cost_usd is None else f"${spent.cost_usd:.4g}"
    lost_cost = "unknown" if spent.lost_cost_usd is None else f"${spent.lost_cost_usd:.4g}"
    lost = f"; lost {spent.lost_calls} calls, {spent.lost_tokens} tokens, {lost_cost}"
    children = f"; {spent.child_steps} steps of children" if spent.child_steps else ""
    return f"{spent.calls} calls, {spent.tokens} tokens, {cost}{lost if spent.lost_tokens else ''}{children}"


def _item(item: Any) -> str:
    quotes = f" {'/'.join(item.quotes)!r}" if any(item.quotes) else ""
    return f"{item.id} {' '.join(item.evidence) if item.done else 'open'}{quotes}"


_NOTE = TypeAdapter[Note](Note)


FACTS: dict[str, Callable[[RunState], str]] = {
    "rests": rest_of,
    "spent": _spent,
    "deadline": lambda state: instant(state.brief.limits.deadline_at),
    "due": lambda state: instant(state.due_at) if state.due_at else "never",
    "steps": lambda state: ", ".join(f"{r.step} {r.tool} {r.status}" for r in state.completed),
    "summary": lambda state: state.completed[-1].summary,
    "result": lambda state: compact(state.last_output),
    "out": lambda s: ", ".join(named(p.action.tool, p.step, p.task, p.round, p.attempt) for p in s.pendings),
    "out until": lambda state: ", ".join(instant(pending.deadline_at) for pending in state.pendings),
    "grants": lambda state: "; ".join(
        f"{p.grant.steps} steps, {p.grant.tokens} tokens, {p.grant.cost_usd and round(p.grant.cost_usd, 4)} USD"
        for p in state.pendings
        if p.grant
    ),
    "owed": lambda state: " ".join(
        e.key.removeprefix(f"agentic:run:{state.run_id}:") for e in messages.outstanding(state)
    ),
    "children": lambda state: ", ".join(f"{child.step} {child.task}:{child.round}" for child in state.children),
    "evidence": lambda state: ", ".join(f"{e.task} {e.output.get('class', 'ok')}" for e in state.evidence),
    "done": lambda state: ", ".join(map(_item, state.done_items)),
    "framing": lambda state: compact(state.framing and [*state.framing.definition_of_done, *state.framing.constraints]),
    "doubts": lambda state: ", ".join(f"{doubt.tool} {doubt.step}" for doubt in state.doubts),
    "rulings": lambda state: ", ".join(
        " ".join(filter(None, (r.verdict, r.by and f"by {r.by}", r.step and f"step {r.step}", str(r.reason))))  # type: ignore[arg-type]
        for r in state.rulings
    ),
    "messages": lambda state: f"{len(state.messages)}: {'; '.join(state.messages[-2:])}",
    "strangers": lambda state: str(state.tainted_by),
    "facts": lambda state: "; ".join(state.facts),
    "remedy": lambda state: " | ".join(filter(None, (now.text, now.command))) if (now := remedy(state)) else "",
    "notes": lambda state: " ".join(note.kind for note in state.notes),
    "note": lambda state: compact(_NOTE.dump_python(state.notes[-1], exclude_defaults=True, exclude={"size"})),
    "artifacts": lambda state: " ".join(state.artifacts),
    "skills": lambda state: " ".join(skill.name for skill in state.brief.skills),
    "limits": lambda s: ", ".join(
        f"{name} {getattr(s.brief.limits, name)}"
        for name in ("max_steps", "max_reframes", "max_tokens", "max_cost_usd")
    ),
    "counts": lambda s: f"{s.reframes} reframes, {s.refused_done} done refused, {s.questions} questions, step {s.step}",
}


def fact(run: Script, name: str) -> str:
    """A fact of FACTS; `said`; `keys`; `opened`, by an answer; or a published field: `agent.waiting reason`."""
    change = run.story[-1]
    if name == "opened":
        return " ".join(task for one in change.transition.all(RunReopened) for _, task, _ in one.tasks)
    if name == "said":
        return " | ".join(f"{said['phase']}: {said['summary']}" for said in change.published(subjects.PROGRESS))
    if name == "keys":
        keys = [one.key.removeprefix(f"agentic:run:{run.state.run_id}:") for one in change.messages]
        return " ".join(key for key in keys if not key.startswith("progress"))
    if name in FACTS:
        return FACTS[name](run.state)
    subject, *fields = name.split(" ")
    (payload,) = change.published(subject)
    for field in fields:
        payload = payload[field]
    return payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)


# A text


class Reader:
    """Reads a transcript line by line and renews it. `shown`: the case, or the row, that facts are of."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}
        self.case = self.shown = Play(self.words)

    def read(self, line: str) -> Iterator[str]:
        sign, _, rest = line.partition(" ")
        if sign == "|":
            events = rest.partition(" <<")[0]
            self.shown = self.case.branch()
            self.shown.feed(events)
            effects = led_to(self.shown.run.story[-1])
            yield f"| {events} << {'; '.join(one if len(one) <= ROW else f'{one[:ROW]}…' for one in effects)}"
        elif sign == "==":
            names = rest.partition(":")[0]
            values = (fact(self.shown.run, name) for name in names.split(", "))
            yield f"== {names}: {' · '.join(values)}".rstrip()
        elif sign == ">>":
            events = rest.partition(" <<")[0]
            self.case.feed(events)
            self.shown = self.case
            yield from _shown(events, led_to(self.shown.run.story[-1]))
        elif sign != "<<":
            self._begins(sign, rest)
            yield line

    def _begins(self, sign: str, rest: str) -> None:
        if sign == "#":
            self.case = self.shown = Play(self.words)
        elif sign == "::":
            name, _, events = rest.partition(" = ")
            self.words[name] = events
        elif sign == "..":
            self.case.feed(rest, quiet=True)
            self.shown = self.case


def _shown(events: str, effects: list[str]) -> Iterator[str]:
    line = f">> {events} << {'; '.join(effects)}"
    if len(line) <= WIDTH:
        yield line
    else:
        yield f">> {events}"
        yield from (f"<< {effect}" for effect in effects)


def rendered(text: str) -> str:
    reader = Reader()
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            lines += reader.read(line)
        except Exception as error:
            error.add_note(f"in line {number}: {line}")
            raise
    return "\n".join(lines) + "\n"


FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


def case(path: Path) -> object:
    """The first line of a file names its attacks of docs/SECURITY.md."""
    attacks = re.match(r"attacks: ([\d ]+)\n", path.read_text(encoding="utf-8"))
    marks = [pytest.mark.attack(*map(int, attacks[1].split()))] if attacks else []
    return pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.parametrize("path", [case(path) for path in FILES])
def test_a_run_does_what_its_transcript_says(path: Path, golden: Golden) -> None:
    golden(path, rendered(path.read_text(encoding="utf-8")))
