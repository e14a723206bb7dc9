"""A story as its readers see it: its rulings, its trace, the entries of its diary, and what is said of each of them."""

import json
from typing import Any

from agent_service.telling.entries import entry_views
from agent_service.telling.moments import Moment, Ruling, retell, rulings
from agent_service.telling.pages.trail import trail
from tests.core.script import Script
from tests.projections.journals import entries_of


def moments_of(script: Script) -> list[Moment]:
    return list(retell(entries_of(script)))


def ruled(script: Script) -> list[tuple[str, int, str, str | None]]:
    """The rulings of the newest moment: phase, step, status and class."""
    return [_short(ruling) for ruling in rulings(moments_of(script)[-1])]


def _short(ruling: Ruling) -> tuple[str, int, str, str | None]:
    return ruling.phase.value, ruling.step, ruling.status, ruling.error_class


def traced(script: Script) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trail(entries_of(script))["trace.jsonl"].splitlines()]


def diary(script: Script) -> list[str]:
    """The entries of decisions.md."""
    return trail(entries_of(script))["decisions.md"].split("\n## ")[1:]


def said(script: Script) -> list[str]:
    return [view.summary for view in entry_views(entries_of(script))]
