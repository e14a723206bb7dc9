"""The results that a step has gathered: as kept, as handed to the asker, and as told to the model.

An asker gets them in the order of rounds and tasks, so a crash or a late result changes nothing.
"""

import json
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from agent_service.core.brief import Continuations
from agent_service.core.phases import Action
from agent_service.core.state import RunState, replace
from agent_service.core.tools.attempts import Evidence, Gathering, Pending, Task, asker_of
from agent_service.core.tools.flights import gathering_of
from schemas.clipping import clipped
from schemas.events import MAX_MESSAGE_BYTES

MAX_KEPT, MAX_HANDED, LEAST_HANDED = 32_000, 256_000, 200
"""Bytes of JSON: of one kept result, of all handed on together, and of each of these at least. A request must fit into
a message, where a control character takes six bytes.
"""
NAMED, MAX_NAMED = ("artifact_path", "content_type", "class"), 200
MAX_SENT = MAX_MESSAGE_BYTES - 16 * 1024
"""Bytes of a request's arguments; the rest of its message has room beside them."""
MAX_TOLD = 600
"""Bytes of one result of a step that may gather no more."""


def as_sent(state: RunState, pending: Pending) -> Action:
    gathering = gathering_of(state.waiting, pending.step) if pending.task else None
    task = task_of(gathering, pending.task) if gathering else None
    if task is None:
        return pending.action
    request, granted = (pending.task, pending.round), state.brief.limits.continuations
    return replace(pending.action, given=given(state.evidence, pending.step, task, request, granted))


def task_of(gathering: Gathering, name: str) -> Task | None:
    return next((task for task in gathering.tasks if name in (task.id, task.again)), None)


def given(
    evidence: Sequence[Evidence], step: int, task: Task, request: tuple[str, int], granted: Continuations
) -> dict[str, JsonValue]:
    """What a request gets beside its arguments: results of its tasks, or dependencies. `request`: name and round."""
    name, asked_in = request
    if name != task.again:
        needed = [one for one in evidence if one.name in {(step, need, task.round) for need in task.needs}]
        return {"evidence": _handed(needed)} if task.needs else {}
    asked = [one for one in evidence if one.step == step and asker_of(one.task) == task.id]
    mine = [one for one in asked if task.round < one.round < asked_in]
    used = asked_in - 1
    left = max(0, granted.max_plugin_continuations - used)
    return {"evidence": _handed(mine), "continuations": used, "continuations_left": left}


def kept(output: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return _bounded(output, MAX_KEPT)


def told(state: RunState, step: int) -> list[JsonValue]:
    return [_in_short(one) for one in _in_order(one for one in state.evidence if one.step == step)]


def _in_order(some: Iterable[Evidence]) -> list[Evidence]:
    return sorted(some, key=lambda one: (one.round, one.place))


def _handed(some: Sequence[Evidence]) -> list[JsonValue]:
    share = max(LEAST_HANDED, MAX_HANDED // max(1, len(some)))
    return [_item(one, share) for one in _in_order(some)]


def _item(one: Evidence, share: int) -> dict[str, JsonValue]:
    item: dict[str, JsonValue] = {"task": one.task.rpartition(".")[2], "round": one.round, "action": one.kind}
    if one.kind == "retrieve":
        item |= {"query": _shortened(one.query, max(LEAST_HANDED, share // 4)), "profile": one.profile}
    item |= {"tool": one.tool, "status": one.status}
    return item | {"result" if one.status == "ok" else "error": _bounded(one.output, share)}


def _bounded(output: dict[str, JsonValue], most: int) -> dict[str, JsonValue]:
    if size_of(output) <= most:
        return output
    named: dict[str, JsonValue] = {
        name: told for name in NAMED if isinstance(told := output.get(name), str) and len(told) <= MAX_NAMED
    }
    words = output.get("summary") or output.get("message") or output.get("excerpt")
    text = words if isinstance(words, str) else json.dumps(output, ensure_ascii=False)
    return named | {"message" if "class" in output else "summary": _shortened(text, most)}


def _shortened(text: str, most: int) -> str:
    length = min(len(text), most)
    while (size := size_of(text[:length])) > most + 2:  # its quotation marks
        length = length * most // size
    return clipped(text, length)


def size_of(value: JsonValue) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _in_short(one: Evidence) -> dict[str, JsonValue]:
    asked = f"{one.tool} {one.command}" + (f": {one.query}" if one.query else "")
    output = _bounded(one.output, MAX_TOLD)
    return {"task": one.task, "round": one.round, "asked": asked, "status": one.status, "output": output}
