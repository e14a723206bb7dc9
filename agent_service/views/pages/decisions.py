"""decisions.md: a section for each item of the history: thoughts, steps, waits and people's words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from agent_service.core.phases import Met, Plan, Proof, Refusal, Unmet, Unusable
from agent_service.core.proof import shown_by
from agent_service.core.state import RunState
from agent_service.history.history import History
from agent_service.history.items import Item, Thought
from agent_service.history.plain import duration, instant
from agent_service.history.words import call_of, speaker, usd
from agent_service.views.pages.markdown import bullets, code, fenced, inline, json_block, numbered, page, section
from agent_service.views.pages.standing import reasons

DEEPEST = 6
"""Level of a heading."""
PLANNED = ("arguments", "expected", "risk", "rationale")
"""Shown in the section of the plan; a query is in its title."""


def decisions_page(run: RunState, history: History, head: Sequence[str]) -> str:
    intro = (
        f"Run {code(run.run_id)}, told from its journal. The number in a heading is the entry that it began with, the "
        f"time in brackets how long it took. `agentic prompt {run.run_id} --call N` shows what a call was told."
    )
    return page("Decisions", *head, intro, *(_item(run, item) for item in history.tree() if not item.repeats))


def _item(run: RunState, item: Item) -> str:
    began, ended = item.started_at, item.ended_at
    when = f" · {instant(began)}" if began else ""
    took = f" ({duration(ended - began)})" if began and ended and (item.ended_in or 0) > item.entry else ""
    status = "" if item.status == "ok" or item.kind == "ending" else f", {item.status}"
    heading = f"{item.entry}. {inline(item.title)}{status}{when}{took}"
    blocks = _thought(run, item, item.thought) if item.thought else _happened(item)
    return section(heading, *blocks, level=min(item.depth + 2, DEEPEST))


def _happened(item: Item) -> Iterator[str]:
    hidden = PLANNED if item.kind == "step" else ("query",)
    if item.kind not in ("wait", "phase"):
        yield from _values({name: value for name, value in item.about.items() if name not in hidden})
    if item.error:
        yield f"{code(item.error.error_class)}{', may be tried again' if item.error.retryable else ''}:"
        yield fenced(item.error.message)
    elif item.summary or item.kind == "person":
        yield fenced(item.summary or item.text)
    elif item.text and item.kind not in ("step", "task"):
        yield inline(item.text)
    if item.kind == "wait" and item.until and "retry" not in item.about["kind"]:
        yield f"Until {instant(item.until)}, at the latest."
    if item.execution and str(item.execution):
        yield f"As its executor tells: {inline(str(item.execution))}"
    if item.execution and item.execution.stderr:
        yield f"On stderr:\n\n{fenced(item.execution.stderr)}"


def _thought(run: RunState, item: Item, thought: Thought) -> Iterator[str]:
    one = thought.became
    if not one.along:
        yield _paid(thought)
    match thought.decision:
        case Plan() as plan:
            for number, action in enumerate(plan.actions, start=one.step):
                yield f"**Step {number}: {code(call_of(action))}**"
                yield json_block(action.payload)
            yield reasons(run, plan)
        case Unusable(raw=raw):
            yield fenced(raw) if raw else ""
        case Refusal():
            pass
        case decision:
            yield from _values({field.name: getattr(decision, field.name) for field in fields(decision)})
            yield bullets(f"Not accepted: {inline(str(why))}" for why in item.about.get("refusals", ()))
    if one.status != "ok":
        error_class = f" ({code(one.error_class)})" if one.error_class else ""
        why = "; ".join(map(str, one.why))
        yield f"**{one.status.capitalize()}**{error_class}" + (f": {inline(why)}" if why else ".")


def _paid(thought: Thought) -> str:
    reply = thought.reply
    usage, made = reply.usage, reply.provenance
    cached = f" ({usage.cache_read_tokens} from the cache)" if usage.cache_read_tokens else ""
    missed = f" The provider's prompt cache was missed: {inline(made.cache_miss)}" if made and made.cache_miss else ""
    spent = f"{usage.input_tokens} tokens in{cached}, {usage.output_tokens} out, {usd(usage.cost_usd)}"
    return f"By {inline(speaker(reply.model))}, call {reply.call}: {spent}.{missed}"


def _values(told: Mapping[str, Any]) -> Iterator[str]:
    for name, value in told.items():
        label = f"**{name.replace('_', ' ').capitalize()}:**"
        match value:
            case _ if value in (None, "", (), {}):
                continue
            case dict():
                yield f"{label}\n\n{json_block(value)}"
            case tuple():
                yield f"{label}\n\n{numbered(map(_text, value))}"
            case _:
                yield f"{label} {inline(_text(value))}"


def _text(value: Any) -> str:
    match value:
        case datetime():
            return instant(value)
        case float():
            return f"{value:g}"
        case bool():
            return "yes" if value else "no"
        case Proof():
            return str(shown_by(value))
        case Met(item=item, evidence=evidence, quote=quote):
            return f"{item}, by {evidence}" + (f', "{quote}"' if quote else "")
        case Unmet(item=item, reason=reason):
            return f"{item}: {reason}" if reason else item
    return str(value)
