"""All views of a run in one text, for golden files."""

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import yaml
from pydantic import BaseModel
from rich.console import Console

from agent_service.cli import output, run_display
from agent_service.core.state import RunState
from agent_service.history.history import History
from agent_service.history.log_line import log_line
from agent_service.history.words import entry_summary
from agent_service.run.journal import Commit, replay
from agent_service.run.ports import PromptText
from agent_service.views.journal import call_view, timeline_view
from agent_service.views.run import StepDetail, items_of_step, run_view, step_detail
from agent_service.views.spans import spans_since_rest
from agent_service.views.why import Observations, why_view
from groundwork.telemetry.span import Span
from tests.core.script import Script
from tests.projections.journals import entries_of, pages_of

LONGEST = 110
OF_EVERY_LINE = frozenset({"run_id", "wake_id", "trace_id", "entry", "event"})
OF_EVERY_SPAN = frozenset({"agentic.run_id", "agentic.wake_id", "gen_ai.conversation.id", "gen_ai.operation.name"})


def history(script: Script, after: int) -> str:
    entries = entries_of(script)
    changes = list(replay(entries))
    return sections(
        {
            "entries": lines(line for change in changes[after:] for line in of_entry(change)),
            "trace.jsonl": lines(acts_and_decisions(pages_of(entries)["trace.jsonl"], after)),
            "calls without a reply": lines(filter(None, (of_call(changes, n + 1) for n in range(script.state.calls)))),
            "timeline": lines(of_item(item) for item in items(changes) if item["entry"] > after),
            "spans": lines(tree(spans_since_rest(entries, since=changes[after].entry.at))),
        }
    )


def standing(script: Script) -> str:
    entries, run = entries_of(script), script.state
    changes = list(replay(entries))
    return sections(
        {
            "view": dumped(run_view(run, History(changes))),
            "steps": lines(dumped(step_of(changes, step)) for step in range(1, run.step + 1)),
            "why": lines(why(run, Observations())),
            "terminal": terminal(changes),
            "plan.md": without_blank_lines(pages_of(entries)["plan.md"]),
        }
    )


def sections(parts: dict[str, str]) -> str:
    return "\n".join(f"=== {name}\n{text}\n" for name, text in parts.items() if text)


def lines(texts: Iterable[str]) -> str:
    return "\n".join(texts)


def without_blank_lines(page: str) -> str:
    return lines(line for line in page.splitlines() if line)


def diary(courses: Iterable[Script]) -> Iterator[str]:
    """Sections of all decisions.md with headings or bold words unlike any before."""
    known: set[tuple[str, ...]] = set()
    for script in courses:
        _, *told = re.split("^(?=## )", pages_of(entries_of(script))["decisions.md"], flags=re.MULTILINE)
        for entry in told:
            title = entry.partition(" · ")[0].partition(" of ")[0]
            shape = re.sub(r"[\d#.]", "", title), *sorted(set(re.findall(r"\*\*([A-Za-z, ]+)", entry)))
            if shape not in known:
                known.add(shape)
                yield without_blank_lines(entry)


def items(changes: Sequence[Commit]) -> list[dict[str, Any]]:
    return list(timeline(changes)["items"])


def timeline(changes: Sequence[Commit]) -> dict[str, Any]:
    view = timeline_view(changes[0].entry.run_id, History(changes))
    return view.model_dump(mode="json", by_alias=True)


def of_entry(change: Commit) -> Iterator[str]:
    message, told = log_line(change)
    fields = {name: value for name, value in told.items() if name not in OF_EVERY_LINE and value is not None}
    yield f"{change.entry.seq}. {change.entry.kind}: {entry_summary(change)}"
    level = "WARNING " if "why" in told else ""
    yield f"   {level}{message} {json.dumps(fields)}"


def of_call(changes: Sequence[Commit], number: int) -> str:
    view = call_view(changes, number, lambda _: PromptText(system=(), user=(), version=""))
    assert view is not None
    made = view.item
    return "" if made.thought else f"{number} {made.phase} by {made.model}: {view.outcome}"


def acts_and_decisions(text: str, after: int) -> Iterator[str]:
    for line in (line for line in map(json.loads, text.splitlines()) if line["entry"] > after):
        yield json.dumps({name: value for name, value in line.items() if value is not None and name != "hash"})


def of_item(item: dict[str, Any]) -> str:
    known = {name: value for name, value in item.items() if value not in (None, "", 0)}
    began, ended = known.pop("started_at"), known.pop("ended_at", "")
    head = f"{'  ' * known.pop('depth', 0)}{known.pop('entry')} {known.pop('title')} [{known.pop('status')}]"
    return f"{head} {began[11:-1]}..{ended[11:-1]} {json.dumps(known, ensure_ascii=False)}"


def why(run: RunState, seen: Observations) -> Iterator[str]:
    view = why_view(run, seen)
    yield view.verdict
    yield from (f"- {fact.what}: {fact.text}" for fact in view.facts)
    if view.remedy:
        yield f"{view.remedy.text}: {view.remedy.command}"


def terminal(changes: Sequence[Commit]) -> str:
    console = Console(file=io.StringIO(), width=LONGEST, color_system=None)
    with console.capture() as captured:
        for item in timeline(changes)["items"]:
            if not item["repeats"]:
                console.print(output.hanging(run_display.INDENT, run_display.timeline_row(item, changes[-1].entry.at)))
    return lines(line.rstrip() for line in captured.get().splitlines())


def tree(found: Sequence[Span], above: str | None = None, indent: str = "") -> Iterator[str]:
    """One line per span in order of their beginning, indented below their parents."""
    known = {span.span_id: span for span in found}
    for span in sorted(found, key=lambda span: span.started_at):
        if (span.parent_id if span.parent_id in known else None) != above:
            continue
        attributes = {name: value for name, value in span.attributes.items() if name not in OF_EVERY_SPAN}
        took = (span.ended_at - span.started_at).total_seconds()
        error = f" ! {span.error}" if span.error else ""
        besides = [f"->{link.trace_id}/{link.span_id}" for link in span.links]
        yield " ".join((f"{indent}{span.name}{error}", f"{took:g}s", json.dumps(attributes), *besides))
        yield from tree(found, span.span_id, indent + "  ")


def dumped(view: BaseModel | None) -> str:
    """A view as YAML without empty values."""
    told = _pruned(json.loads(view.model_dump_json(by_alias=True))) if view else None
    said = yaml.safe_dump(told, default_flow_style=None, allow_unicode=True, sort_keys=False, width=LONGEST)
    return said.rstrip() if told else ""


def _pruned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _pruned(inner) for name, inner in value.items() if inner not in (None, "", [], {}, 0, False)}
    return [_pruned(inner) for inner in value] if isinstance(value, list) else value


def step_of(changes: Sequence[Commit], step: int) -> StepDetail:
    answers = {change.entry.seq: change for change in changes}
    return step_detail(changes[-1].state, items_of_step(History(changes), step), answers)
