"""What goes by in `agentic dev`, one line each, read from the logs of both services as they grow."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich.text import Text

from agent_service.core.unseen import visible
from agent_service.telling.plain import one_line

LOOK_AT_LOGS_S = 0.2
MOST_RUNS = 1000
LONGEST_REASON = 300
OTHER_TOOLS = "other tools are on offer"
ENDED = ("done", "escalated", "failed", "cancelled")
NOTABLE = frozenset({"WARNING", "ERROR", "CRITICAL"})

Fields = dict[str, Any]


class Lines:
    def __init__(self) -> None:
        self._accepted: dict[str, datetime] = {}

    def line(self, written: str) -> Text | None:
        try:
            fields: Fields = json.loads(written)
            at = datetime.fromisoformat(fields["ts"])
        except (ValueError, TypeError, KeyError):  # what a library or the system wrote there
            return None
        shown = self._of_run(fields, at) if fields.get("state_transition") else _of_tools(fields)
        if not shown and fields.get("level") not in NOTABLE:
            return None
        what, run_id = shown or (str(fields.get("msg")),), fields.get("run_id")
        why = one_line(str(fields["why"]), LONGEST_REASON) if fields.get("why") else ""
        style = "yellow" if fields["level"] in NOTABLE else ""
        return Text.assemble(
            (f"{at.astimezone():%H:%M:%S}  ", "dim"),
            (f"{visible(str(run_id))}  " if run_id else "", "cyan"),
            (visible("  ".join(filter(None, what))), style),
            (f": {why}" if why else "", "dim"),
        )

    def _of_run(self, fields: Fields, at: datetime) -> Sequence[str]:
        state = str(fields["state_transition"]).rpartition("->")[2]
        if fields.get("event") == "WakeAccepted":
            self._accepted = dict(list(self._accepted.items())[1 - MOST_RUNS :]) | {fields["run_id"]: at}
            return "accepted", f"from {fields['by']}" if fields.get("by") else ""
        ended = self._ending(fields, at) if state in ENDED else ()
        if fields.get("event") == "ToolReturned":
            return f"step {fields['step']} {fields['tool']}", _outcome(fields), *ended
        return ended

    def _ending(self, fields: Fields, at: datetime) -> Sequence[str]:
        began = self._accepted.pop(fields["run_id"], None)
        took = f"after {(at - began) / timedelta(seconds=1):.1f} s" if began else ""
        cost = f"{fields['cost_usd']:.4f} USD" if fields.get("cost_usd") else ""
        return fields["state_transition"].rpartition("->")[2], took, f"{fields.get('tokens') or 0} tokens", cost


def _of_tools(fields: Fields) -> Sequence[str]:
    if fields.get("msg") != OTHER_TOOLS:
        return ()
    return "tools", *(f"{how}: {', '.join(fields[how])}" for how in ("new", "changed", "gone") if fields.get(how))


def _outcome(fields: Fields) -> str:
    attempt = f" (attempt {fields['attempt']})" if fields.get("attempt", 1) > 1 else ""
    happened = str(fields["msg"]).partition(";")[0].removeprefix(f"step {fields['step']} ")
    return f"{happened}{attempt}  {fields['latency_ms'] / 1000:.1f} s"


async def tell_lines(logs: Mapping[Path, int], tell: Callable[[Text], None]) -> None:
    lines, places = Lines(), dict(logs)
    while True:
        for log, place in places.items():
            for written in _added(log, place):
                places[log] += len(written)
                if line := lines.line(written.decode(errors="replace")):
                    tell(line)
        await asyncio.sleep(LOOK_AT_LOGS_S)


def _added(log: Path, place: int) -> list[bytes]:
    with log.open("rb") as file:
        file.seek(place)
        return [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
