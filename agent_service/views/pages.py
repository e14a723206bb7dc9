"""Pages of a run's folder as texts by file name, and the verification of a folder against its journal.

Pages are Markdown from `templates/`, and trace.jsonl (RFC-95). Every value is escaped unless it is `Marked`, so that
foreign text cannot forge the structure of a page.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from itertools import zip_longest
from typing import Any, Literal, Protocol

from pydantic import JsonValue

from agent_service.core.framing import proof_text
from agent_service.core.phases import ItemClaim, ItemRetraction, Plan, Proof
from agent_service.core.state import RunState
from agent_service.history import words
from agent_service.history.history import History
from agent_service.history.items import Item, Thought
from agent_service.history.results import FILES, kept_artifacts, recorded_artifacts
from agent_service.history.text import ask_lines, clipped, duration, instant, one_line, rfc3339
from agent_service.history.words import clause, waiting_for
from agent_service.run.human_tasks import open_task, remedy
from agent_service.run.journal import GENESIS, Commit, JournalRecord
from agent_service.views.workspace.files import FileList, TooLarge, Unsafe
from agent_service.views.workspace.rendering import MAX_ARTIFACTS, MAX_TOTAL
from groundwork.service.invisible import json_visible, visible
from groundwork.service.program import loaded
from schemas.catalog import ToolCommand
from schemas.values import dataclass

WHOLE = 4 << 20
"""Characters; no message is that long."""


def pages(run: RunState, records: Sequence[JournalRecord]) -> dict[str, str]:
    """`records`: the whole journal of `run`."""
    history, task = History(), open_task(run)
    ended = tuple(history.closed_by(records))
    context: dict[str, Any] = {
        "run": run,
        "history": history,
        "artifacts": recorded_artifacts(records),
        "waits": waiting_for(run),
        "asks": tuple(ask_lines(task.model_dump(mode="json") if task else None)),
        "now": remedy(run),
        "WHOLE": WHOLE,
    }
    context["opening"] = Marked(_rendered("opening.md", context).strip().replace("\n", WITHIN))
    rendered = {name: _rendered(name, context) for name in FILES if name.endswith(".md")}
    return rendered | {"trace.jsonl": trace(history, ended)}


def _rendered(name: str, context: Mapping[str, Any]) -> str:
    page = _templates().get_template(name).render(context)
    return _BETWEEN_BLOCKS.sub("\n\n", page).strip("\n").replace(WITHIN, "\n") + "\n"


@cache
def _templates() -> Any:
    made = loaded("jinja2:Environment")(
        loader=loaded("jinja2:FileSystemLoader")(str(resources.files(__package__) / "templates")),
        undefined=loaded("jinja2:StrictUndefined"),
        finalize=worded,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters = (Marked, inline, sentence, code, fenced, json_block, tier, values, words.limits, words.speaker, words.usd)
    made.filters |= {one.__name__.lower(): one for one in filters}
    made.filters |= {"call": words.call_of, "request": words.request_name}
    return made


def tier(command: ToolCommand | None) -> str:
    if command is None:
        return "not on offer"
    if command.tier == "read":
        return "read, changes nothing outside and may be repeated"
    again = " (idempotent: may be repeated)" if command.idempotent else ""
    return f"write, changes something {'here' if command.effect == 'local' else 'outside'}{again}"


def values(decision: Any) -> dict[str, Any]:
    return {field.name: getattr(decision, field.name) for field in fields(decision)}


# Markdown


MAX_LINE, MAX_CODE = 2_000, 200
MAX_BLOCK = 8_000
WITHIN = "\x1e"
"""Stands for a line break within a block until the page is complete. No text has it, because it is invisible."""

_ACTIVE = re.compile(r"[\\`*\[\]<]|~~|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|&(?=[#A-Za-z])")
_ACTIVE_AT_START = re.compile(r"^(?:[-+=#>~|]|(\d{1,9})(?=[.)]))")
_BACKTICKS = re.compile(r"`+")
_BETWEEN_BLOCKS = re.compile(r"\n{3,}")


class Marked(str):
    """Markdown that is not escaped again."""

    __slots__ = ()


def inline(text: object, limit: int = MAX_LINE) -> Marked:
    escaped = _ACTIVE.sub(r"\\\g<0>", one_line(str(text), limit))
    return Marked(_ACTIVE_AT_START.sub(lambda m: f"{m[0]}\\" if m[1] else f"\\{m[0]}", escaped) or "(empty)")


def sentence(text: object) -> Marked:
    marked = inline(text)
    return marked if marked.endswith((".", "!", "?", "…")) else Marked(f"{marked}.")


def code(text: str) -> Marked:
    line = one_line(text, MAX_CODE)
    if not line:
        return Marked("(empty)")
    ticks = "`" * (_longest_run(line) + 1)
    pad = " " if len(ticks) > 1 else ""
    return Marked(f"{ticks}{pad}{line}{pad}{ticks}")


def fenced(text: str, language: str = "text", *, limit: int = MAX_BLOCK) -> Marked:
    shown = clipped(visible(text), limit).strip("\n")
    fence = "`" * max(3, _longest_run(shown) + 1)
    return Marked(f"{fence}{language}\n{shown}\n{fence}".replace("\n", WITHIN))


def json_block(value: Mapping[str, JsonValue], *, limit: int = MAX_BLOCK) -> Marked:
    return fenced(json.dumps(value, indent=2, ensure_ascii=False), "json", limit=limit)


_SAFE: dict[type[Any], Callable[[Any], str]] = {
    datetime: instant,
    timedelta: duration,
    bool: lambda value: "yes" if value else "no",
    float: "{:g}".format,
    int: str,
}
_TEXTS: dict[type[Any], Callable[[Any], object]] = {Proof: proof_text, ItemClaim: clause, ItemRetraction: clause}


def worded(value: Any) -> Marked:
    if isinstance(value, Marked):
        return value
    if safe := _SAFE.get(type(value)):
        return Marked(safe(value))
    return inline(_TEXTS.get(type(value), str)(value))


def _longest_run(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)


# trace.jsonl


Line = dict[str, JsonValue]

_WRITTEN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def trace(history: History, ended: Iterable[Item]) -> str:
    """`ended`: copies of the items at their ends. The hash of a line covers the hash before and its canonical JSON."""
    previous, written = GENESIS, []
    for line in _lines(history, ended):
        previous = line["hash"] = hashlib.sha256((previous + _CANONICAL.encode(line)).encode()).hexdigest()
        written.append(json_visible(_WRITTEN.encode(line)) + "\n")
    return "".join(written)


def _lines(history: History, ended: Iterable[Item]) -> Iterator[Line]:
    tries = Counter[int | None]()
    for item in ended:
        if item.kind == "phase":
            tries[item.call] += 1
            if item.thought:
                yield _decision(item, item.thought)
            elif item.error:
                yield _line(item, phase=item.phase or "", attempt=tries[item.call], result_status="error")
        elif item.outcome and (item.kind == "attempt" or item.answered_in != item.ended_in):
            above = history.by_id.get(item.parent or "") if item.kind == "attempt" else item
            yield _act(item, above.about if above else {})


def _line(item: Item, **fields: JsonValue) -> Line:
    """`fields` override those of the item."""
    error = item.error
    line: Line = {
        "phase": "act",
        "step": item.step or 0,
        "attempt": item.attempt or 0,
        "timestamp": rfc3339(item.ended_at) if item.ended_at else None,
        "tool": item.tool,
        "args": None,
        "result_status": item.outcome,
        "result_summary": None,
        "error": {"class": error.error_class, "message": error.message} if error else None,
        "retryable": error.retryable if error else None,
        "usage": None,
        "cost_usd": None,
        "entry": item.ended_in,
    }
    return line | fields


def _act(item: Item, request: Mapping[str, JsonValue]) -> Line:
    line = _line(item, args=request.get("arguments"))
    line["result_summary"] = None if item.error else item.summary or None
    if item.execution:
        line["execution"] = item.execution.model_dump(exclude_none=True)
    return line | ({"task": item.task, "round": item.round} if item.task else {})


def _decision(item: Item, thought: Thought) -> Line:
    reply, one, decision = thought.reply, thought.became, thought.decision
    summary = clipped(str(clause(decision)), words.MAX_SUMMARY)
    line = _line(
        item, phase=one.phase, step=one.step, attempt=one.attempt, result_status=one.status, result_summary=summary
    )
    if not one.along:
        usage = asdict(reply.usage)
        line |= {"cost_usd": usage.pop("cost_usd"), "usage": {"model": reply.model, **usage}}
    if isinstance(decision, Plan):
        line |= {"tool": decision.action.tool, "args": decision.action.arguments}
        also: JsonValue = [{"tool": action.tool, "args": action.arguments} for action in decision.also]
        line |= {"also": also} if also else {}
    if made := reply.provenance:
        line |= {"prompt_hash": made.prompt_hash, "schema_hash": made.schema_hash}
    return line


# Verification


JOURNAL = "journal"

Kind = Literal["changed", "missing", "extra", "behind"]
"""`behind`: the file has the state of an earlier entry; the next read renders it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """`place` is `journal` or a path in the run's folder; `line` counts from 1 and is null for files without lines."""

    kind: Kind
    place: str
    line: int | None = None
    text: str

    def __str__(self) -> str:
        where = self.place if self.line is None else f"{self.place}:{self.line}"
        return f"{where}: {self.text}"


class Folder(Protocol):
    def files(self, run_id: str) -> FileList | None: ...

    def read(self, run_id: str, path: str) -> bytes | None: ...


def verify(
    commits: Sequence[Commit], workspace: Folder, run_id: str, *, stored: Mapping[str, str] | None = None
) -> list[Flaw]:
    """At most one flaw per place. Missing folders and pages are no flaw.

    `commits`: the whole journal. `stored`: SHA-256 of the artifacts in the object store, by path. Raises IllegalName.
    """
    listing = workspace.files(run_id)
    if listing is None:
        return []
    on_disk = {file.path for file in listing.files} | set(listing.foreign)
    records = [commit.entry.record() for commit in commits]
    artifacts = kept_artifacts(records)
    total = sum(one.size or 0 for one in artifacts.values())
    all_copied = len(artifacts) <= MAX_ARTIFACTS and total <= MAX_TOTAL  # others stay in their store alone
    paths = [*([] if on_disk.isdisjoint(FILES) else FILES), *artifacts]
    rendered, flaws = cache(lambda seen: pages(commits[seen - 1].state, records[:seen])), list[Flaw]()
    for path in paths:
        try:
            found = workspace.read(run_id, path)
        except (Unsafe, TooLarge) as error:
            flaws.append(Flaw(kind="changed", place=path, text=f"is not what was written: {error.strerror}"))
            continue
        if found is None:
            if all_copied or path in FILES:
                flaws.append(Flaw(kind="missing", place=path, text="is not there"))
        elif artifact := artifacts.get(path):
            if (artifact.sha256 or (stored or {}).get(path)) not in (None, hashlib.sha256(found).hexdigest()):
                brought = f"that step {artifact.step} brought (entry {artifact.entry})"
                text = f"is not the content {brought}: its hash differs"
                flaws.append(Flaw(kind="changed", place=path, text=text))
        else:
            flaws += _flaw_in_page(path, found, rendered, len(records))
    strange = sorted(on_disk.difference(paths))
    return flaws + [Flaw(kind="extra", place=path, text="is not a file of this run") for path in strange]


def _flaw_in_page(name: str, found: bytes, rendered: Callable[[int], Mapping[str, str]], newest: int) -> Iterator[Flaw]:
    """`rendered` gives the pages as of an entry."""
    expected = rendered(newest)[name].encode()
    if found == expected:
        return
    if seen := next((seen for seen in range(newest - 1, 0, -1) if found == rendered(seen)[name].encode()), None):
        yield Flaw(kind="behind", place=name, text=f"is as of entry {seen} of {newest}")
        return
    lines = enumerate(zip_longest(expected.splitlines(keepends=True), found.splitlines(keepends=True)), start=1)
    number = next(number for number, (wanted, there) in lines if wanted != there)
    yield Flaw(kind="changed", place=name, line=number, text="the line is not what the journal says")
