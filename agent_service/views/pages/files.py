"""The files of a run's folder, as texts by name: pages made of `templates/`, and trace.jsonl."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import cache
from importlib import resources
from typing import Any

from agent_service.core.phases import Plan
from agent_service.core.state import RunState
from agent_service.history import words
from agent_service.history.artifacts import FILES, named_artifacts
from agent_service.history.asked import asked
from agent_service.history.history import History
from agent_service.history.plain import duration
from agent_service.history.waiting_for import waiting_for
from agent_service.run.asks import human_task, remedy
from agent_service.run.changes import as_decided
from agent_service.run.journal import Entry, Record
from agent_service.views.pages import markdown
from agent_service.views.pages.markdown import Marked, joined, worded
from agent_service.views.pages.trace import trace
from groundwork.service.beginning import loaded
from schemas.catalog import ToolCommand

WHOLE = 4 << 20
"""More characters than a message can bring."""
_TIERS = {"read": "read, changes nothing outside and may be repeated", "write": "write, changes something outside"}


def pages(run: RunState, records: Sequence[Record]) -> dict[str, str]:
    """`records`: the whole journal of `run`."""
    history, task = History(), human_task(run)
    ended = tuple(history.ends(records))
    told = {
        "run": run,
        "history": history,
        "artifacts": named_artifacts(records),
        "waits": waiting_for(run),
        "asks": tuple(asked(task.model_dump(mode="json") if task else None)),
        "now": remedy(run),
    }
    templates = _templates()
    made = {name: joined(templates.get_template(name).render(told)) for name in FILES if name.endswith(".md")}
    return made | {"trace.jsonl": trace(history, ended)}


def pages_of(entries: Sequence[Entry]) -> dict[str, str]:
    """The pages with the run as the rules tell it. Raises ValueError for a journal that is empty or cannot be told."""
    return pages(as_decided(entries), [entry.record() for entry in entries])


@cache
def _templates() -> Any:
    made = loaded("jinja2:Environment")(
        loader=loaded("jinja2:FileSystemLoader")(str(resources.files(__package__) / "templates")),
        undefined=loaded("jinja2:StrictUndefined"),
        finalize=worded,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    ours: dict[str, Callable[[Any], str]] = {
        "duration": duration,
        "usd": words.usd,
        "label": lambda name: name.replace("_", " ").capitalize(),
    }
    made.filters |= {name: _marked(worded_by) for name, worded_by in ours.items()}
    of_markdown = (markdown.inline, markdown.sentence, markdown.code, markdown.fenced, markdown.json_block)
    made.filters |= {one.__name__: one for one in of_markdown}
    made.filters |= {"call": words.call_of, "request": words.request_of, "limits": words.limits, "tier": _tier}
    made.filters |= {"speaker": words.speaker, "tiers": _tiers, "values": _values, "marked": Marked}
    made.globals["WHOLE"] = WHOLE
    return made


def _marked(text_of: Callable[[Any], str]) -> Callable[[Any], Marked]:
    return lambda value: Marked(text_of(value))


def _tier(command: ToolCommand) -> str:
    again = " (idempotent: may be repeated)" if command.tier == "write" and command.idempotent else ""
    return f"{_TIERS[command.tier]}{again}"


def _tiers(plan: Plan, run: RunState) -> Iterable[str]:
    commands = map(run.brief.command, plan.actions)
    return dict.fromkeys(_tier(command) if command else "not on offer" for command in commands)


def _values(decision: Any) -> dict[str, Any]:
    return {field.name: getattr(decision, field.name) for field in fields(decision)}
