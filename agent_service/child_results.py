"""What came of children, taken from the store: no message about a child is believed.

A result on the bus that is to be a child's says no more than that the child has ended. What came of it is made from its
own state, so that nobody else can answer for it, spend its grant or hide what it left in doubt. Its artifacts are put
among those of its parent, under names that tell their content.
"""

import hashlib
from pathlib import PurePosixPath

from pydantic import JsonValue

from agent_service.arrival import Unreadable
from agent_service.core import children, reporting, supervising
from agent_service.core.state import RunState
from agent_service.errors import Damaged, Replaced
from agent_service.ports import KeptArtifacts, RunStore
from schemas import agent_tool
from schemas.events import ToolOutput, ToolResult

LONGEST_STEM, LONGEST_SUFFIX = 48, 10
DIGEST_DIGITS = 16


class ChildResults:
    """Brings the results of children to their parents."""

    def __init__(self, store: RunStore, artifacts: KeptArtifacts) -> None:
        self._store = store
        self._artifacts = artifacts

    async def of(self, result: ToolResult) -> ToolResult:
        """`result`; where it answers for a child, what came of that one.

        Raises Unreadable for a child that has not ended, and TryAgain when its artifacts cannot be brought along.
        """
        if result.tool != agent_tool.NAME:
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
    """What an artifact of a child is called among its parent's: its own name, and the beginning of its digest, by which
    it is known when a tool is given it (as that of a relayed result is)."""
    name, told = PurePosixPath(path), f"-relayed-{sha256[:DIGEST_DIGITS]}"
    stem = name.stem.removesuffix(told)[:LONGEST_STEM]
    suffix = name.suffix if len(name.suffix) <= LONGEST_SUFFIX else ""
    return f"artifacts/{stem}{told}{suffix}"
