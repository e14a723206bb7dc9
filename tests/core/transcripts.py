"""Transcripts: what happens to a run and what it asks for then, as text that can be written anew.

    :: asked = run planning ; ask              a word of one file; values behind it are added to its `run`
    # a second answer changes nothing          a case begins: a new run
    .. asked ; answer "the new one"            events whose effects are not shown; none of them may be ignored
    >> answer "the old one" << ignored: …      events, and what the last one led to, in the words of `script.led_to`
    << …                                       the same, in lines of its own where it is long
    == messages, due: 1: the new one · +2s     facts of the run, by their names in FACTS
    | answer x << ignored: …                   a row: events from here, what the last one led to; undone afterwards

An event is a word of WORDS with values (JSON, or plain text; `x*500` repeats, `+3h` is an instant), `3x` before it
repeats it (`$n` counts). `name: event` happens to another run: one that `born name` made of a child that was started.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from agent_service.core.brief import Continuations
from agent_service.core.events import ToolReturned
from agent_service.core.facts import RunReopened
from agent_service.core.phases import AskPerson, ItemClaim, ItemRetraction, Next, Proof, Unusable, Wait
from agent_service.core.state import Note, RunState
from agent_service.run import messages
from agent_service.run.human_tasks import remedy
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import ToolResult
from schemas.values import replace
from tests.core import cues
from tests.core.script import NOON, Cue, Script, compact, instant, led_to, named, rest_of

ROW = 90
"""Characters of an effect that a row shows."""
WIDTH = 140
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
STAGES = ("queued", "framing", "planning", "waiting", "reflecting")
SKILLS: tuple[ToolOffer, ...] = (*cues.TOOLS, cues.SHELF, cues.LOOK, cues.AGENT)


class Play:
    """The runs of one case. The unnamed one is the first; `last` had the last event."""

    def __init__(self, words: dict[str, str]) -> None:
        self.words = words
        self.skills = SKILLS
        self.runs: dict[str, Script] = {"": Script()}
        self.last = ""

    @property
    def run(self) -> Script:
        return self.runs[self.last]

    def branch(self) -> "Play":
        other = Play(self.words)
        other.skills, other.last = self.skills, self.last
        other.runs = {name: run.branch() for name, run in self.runs.items()}
        return other

    def feed(self, line: str, *, quiet: bool = False) -> None:
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
        """The events of a word of the file."""
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
            self.runs[self.last] = self.run >> WORDS[word](*plain, **named)


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
    if "budget" in details:
        details["continuations"] = Continuations(**details.pop("budget"))
    if "deadline_at" in details:
        details |= {"deadline_named": True}
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
    """Run `name` is a child that was just started, ready to plan."""
    child = Script()
    child.now = play.run.now
    child = child >> cues.wakes_of(play.run)[number] >> cues.started(play.skills)
    play.runs[name] = child if bare else child >> cues.frames()


def _home(play: Play, name: str) -> None:
    """The end of run `name` reaches its parent."""
    play.runs[play.last] = play.run >> cues.comes_home(play.runs[name])


def _wait(play: Play, span: str) -> None:
    play.run.now += duration(span)


def _again(play: Play) -> None:
    """The newest event again."""
    play.runs[play.last] = play.run >> play.run.story[-1].event


STAGED: dict[str, Callable[..., None]] = {
    "run": _run,
    "offer": _offer,
    "born": _born,
    "home": _home,
    "wait": _wait,
    "again": _again,
}


# Events


def _frame(*items: str, proofs: list[str] | None = None, plan: str = "", **more: Any) -> Cue:
    """`proofs`: a kind and perhaps a tool, one per item. `plan`: the tool of a plan that comes along."""
    reply = {name: more.pop(name) for name in ("tokens", "cost", "call") if name in more}
    words = [text.split() for text in proofs or ()]
    by = tuple(Proof(kind=kind, tool=" ".join(tool)) for kind, *tool in words)  # type: ignore[arg-type] # as written
    told: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in more.items()}
    framing = replace(cues.framing(*items), proofs=by, **told)
    return cues.replies(framing, plan=_along(plan), **reply)


def _reflect(
    verdict: str, plan: str = "", facts: list[str] | None = None, outcome: str | None = None, **more: Any
) -> Cue:
    """Other names are items with their evidence. `plan`: the tool of a plan that comes along."""
    reply = {name: more.pop(name) for name in ("tokens", "cost", "words") if name in more}
    reflection = replace(cues.reflection(verdict, more, facts=tuple(facts or ())), outcome=outcome)
    return cues.replies(reflection, plan=_along(plan), **reply)


ALONG: dict[str, Next | Unusable | None] = {
    "": None,
    "unusable": Unusable(reason="two actions"),
    "cut": Unusable(reason="two actions", cut=True),
    "ask": cues.QUESTION,
    "rest": Wait(why="later", seconds=60.0),
}


def _along(plan: str) -> Next | Unusable | None:
    """Adds to a decision: one of ALONG, or a plan of that tool."""
    return ALONG[plan] if plan in ALONG else cues.plan(plan)


def _claim(verdict: str = "continue", unmet: str = "", seen: bool = True, **claims: list[str]) -> Cue:
    """Items with evidence and a quote, found (or not) in all named places."""
    met = (ItemClaim(item=item, evidence=said[0], quote=said[1] if said[1:] else "") for item, said in claims.items())
    refuted = (ItemRetraction(item=unmet, reason="the newer page says 13"),) if unmet else ()
    return cues.claims(*met, verdict=verdict, unmet=refuted, seen=seen)


def _error(error_class: str = "tool_error", *flags: str, **correlation: Any) -> Cue:
    return cues.errs(error_class, retryable="retry" in flags, **correlation)


def _many(*tools: str, **arguments: Any) -> Cue:
    return cues.replies(cues.several(*tools, **arguments))


def _ask(question: str = "", choices: list[str] | None = None) -> Cue:
    asked = AskPerson(question=question, choices=tuple(choices or ())) if question else cues.QUESTION
    return cues.asks_a_person(asked)


def _rest(seconds: float | None = None, until: datetime | None = None, *, naive: bool = False) -> Cue:
    return cues.waits(seconds, until=until.replace(tzinfo=None) if until and naive else until)


def _continue(asked: Any, task: str = "", **names: Any) -> Cue:
    """`asked`: a query; or a list of tasks as `name tool after,after`; or the JSON itself."""
    return cues.continues(_form(asked), task, **names)


def _want(asked: Any) -> Cue:
    """A continuation of the oldest request that is out."""
    return cues.returns("continuation", output={"continuation": _form(asked)})


def _form(asked: Any) -> Any:
    if isinstance(asked, list):
        return cues.multi_step(*map(_task, asked))
    return cues.retrieve(asked) if isinstance(asked, str) else asked


def _task(text: str | list[Any]) -> dict[str, Any]:
    line, arguments = (text[0], text[1]) if isinstance(text, list) else (text, {})
    name, plugin, after = (*line.split(), "", "")[:3]
    return cues.a_task(name, plugin.strip("-"), tuple(filter(None, after.split(","))), **arguments)


def _nameless(**payload: Any) -> Cue:
    """A result with only these fields."""

    def cue(script: Script) -> Any:
        known = {"run_id": cues.RUN_ID, "step": 1, "attempt": 1, "status": "ok", "completed_at": script.now}
        place = str(payload.get("place", ""))
        said = known | {name: value for name, value in payload.items() if name != "place"}
        return ToolReturned(at=script.now, result=ToolResult.model_validate(said), place=place)

    return cue


WORDS: dict[str, Callable[..., Cue]] = {
    "wake": cues.wake,
    "start": lambda: cues.started(SKILLS),
    "frame": _frame,
    "plan": cues.plans,
    "many": _many,
    "go": cues.goes_on,
    "reflect": _reflect,
    "done": lambda **reply: cues.reflects("done", cues.PROOF, **reply),
    "claim": _claim,
    "find": cues.finds,
    "garble": cues.garbles,
    "digest": cues.digests,
    "refuse": cues.refuses,
    "ask": _ask,
    "rest": _rest,
    "agents": cues.asks_agents,
    "reserve": cues.reserves,
    "unavailable": cues.unavailable,
    "return": cues.returns,
    "error": _error,
    "unreadable": cues.garbled,
    "come": cues.comes,
    "fail": lambda task="", error_class="no_such_thing", *flags, **names: cues.fails(
        task, error_class, retryable="retry" in flags, **names
    ),
    "continue": _continue,
    "want": _want,
    "nameless": _nameless,
    "signal": cues.signal,
    "message": lambda text, **more: cues.signal("message", message=text, **more),
    "answer": lambda text="the new one", **more: cues.answer(text, **more),
    "approve": cues.approves,
    "reject": lambda text=None, **more: cues.rejects(message=text, **more),
    "raise": lambda **more: cues.signal("raise_budget", **more),
    "resume": cues.resume,
    "cancel": cues.cancel,
    "break": cues.breaks,
    "still": cues.extend_deadline,
    "due": lambda: cues.due,
    "early": lambda: cues.too_early,
}


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
    if name == "opened":
        return " ".join(task for one in run.story[-1].transition.all(RunReopened) for _, task, _ in one.tasks)
    if name == "said":
        return " | ".join(run.said)
    if name == "keys":
        keys = [key.removeprefix(f"agentic:run:{run.state.run_id}:") for key in run.dedupe_keys]
        return " ".join(key for key in keys if not key.startswith("progress"))
    if name in FACTS:
        return FACTS[name](run.state)
    subject, *fields = name.split(" ")
    payload = run.sent(subject)
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
            yield from _told(events, led_to(self.shown.run.story[-1]))
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


def _told(events: str, effects: list[str]) -> Iterator[str]:
    """Events and outcomes, on one line if short."""
    line = f">> {events} << {'; '.join(effects)}"
    if len(line) <= WIDTH:
        yield line
    else:
        yield f">> {events}"
        yield from (f"<< {effect}" for effect in effects)


def rendered(text: str) -> str:
    """The transcript with renewed outcomes behind `<<` and `==`."""
    reader = Reader()
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            lines += reader.read(line)
        except Exception as error:
            error.add_note(f"in line {number}: {line}")
            raise
    return "\n".join(lines) + "\n"
