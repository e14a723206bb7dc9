"""Results of children, and how deep a run is.

No message about a child is believed: one on the bus says only that it ended. Its result is made from its own state, so
that nobody else can answer for it, spend its grant or hide its in-doubt writes. Its artifacts are copied to its parent,
under names that tell their content.
"""

import hashlib
from collections.abc import Mapping
from pathlib import PurePosixPath

from pydantic import JsonValue

from agent_service.core.graph import children, reporting, supervising
from agent_service.core.graph.children import DEPTH
from agent_service.core.limits import LimitRefused
from agent_service.core.state import RunState
from agent_service.errors import Damaged, Replaced
from agent_service.run.arrival import Unreadable
from agent_service.run.ports import KeptArtifacts, RunStore
from schemas import catalog
from schemas.events import AgenticStart, ToolOutput, ToolResult


def depth_of(start: AgenticStart, parent: RunState | None, *, deepest: int) -> int:
    """Never less than its parent and one. `parent`: the run that it names, as it stands here. Raises LimitRefused for
    one that is unknown here or has ended, and for a start deeper than `deepest`. An invalid depth counts as the
    deepest.
    """
    in_context = _told_in(start.context)
    told = deepest if in_context is None else in_context
    if start.parent_run_id is None and not start.depth:
        return told
    if start.parent_run_id and (parent is None or parent.final):
        raise LimitRefused("parent_run_id", f"{start.parent_run_id} is no run that is under way here")
    depth = max(start.depth, told, parent.brief.depth + 1 if parent else 0)
    if depth > deepest:
        raise LimitRefused("depth", f"would be {depth}, and agents may call each other {deepest} times in a row")
    return depth


def _told_in(context: Mapping[str, JsonValue]) -> int | None:
    told = context.get(DEPTH, 0)
    return told if isinstance(told, int) and not isinstance(told, bool) and told >= 0 else None


LONGEST_STEM, LONGEST_SUFFIX = 48, 10
DIGEST_DIGITS = 16


class ChildResults:
    def __init__(self, store: RunStore, artifacts: KeptArtifacts) -> None:
        self._store = store
        self._artifacts = artifacts

    async def of(self, result: ToolResult) -> ToolResult:
        """The result; a child's is made from its state. Raises Unreadable for a child that has not ended, and TryAgain
        when its artifacts cannot be copied.
        """
        if result.tool != catalog.NAME:
            return result
        parent = await self._state(result.run_id)
        pending = supervising.awaited(parent, result) if parent else None
        if parent is None or pending is None:
            return result
        run_id = children.run_id_of(parent.run_id, pending)
        try:
            child = await self._state(run_id)
        except Damaged as error:
            return supervising.unreadable(parent, run_id, str(error), result.completed_at) or result
        if child is None or not child.final:
            raise Unreadable(f"step {result.step} of run {parent.run_id} is the run {run_id}, which has not ended")
        return await self._with_artifacts(parent.run_id, child)

    async def _state(self, run_id: str) -> RunState | None:
        run = await self._store.load(run_id)
        return run.state if run else None

    async def _with_artifacts(self, parent_run_id: str, child: RunState) -> ToolResult:
        told = reporting.result(child)
        if not child.artifacts:
            return told
        output = (told.result or ToolOutput()).model_dump(mode="json", exclude_none=True)
        output["artifacts"] = [
            brought for path in child.artifacts if (brought := await self._bring(parent_run_id, child.run_id, path))
        ]
        return told.model_copy(update={"result": ToolOutput.model_validate(output)})

    async def _bring(self, parent_run_id: str, run_id: str, path: str) -> dict[str, JsonValue] | None:
        try:
            content = await self._artifacts.get(run_id, path)
        except Replaced:
            return None
        if content is None:
            return None
        sha256 = hashlib.sha256(content).hexdigest()
        brought = name_for(path, sha256)
        await self._artifacts.put(parent_run_id, brought, content)
        return {"path": brought, "size": len(content), "sha256": sha256, "of": path}


def name_for(path: str, sha256: str) -> str:
    """Its own name, and the beginning of its digest, by which a tool knows it."""
    name, told = PurePosixPath(path), f"-relayed-{sha256[:DIGEST_DIGITS]}"
    stem = name.stem.removesuffix(told)[:LONGEST_STEM]
    suffix = name.suffix if len(name.suffix) <= LONGEST_SUFFIX else ""
    return f"artifacts/{stem}{told}{suffix}"
