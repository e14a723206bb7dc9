"""From an outcome to a result on the bus: artifacts stored, answer durable, result published, in this order. And from
artifacts to the arguments of a tool.

Each step may be repeated. What came of a call that was answered without its end is told late.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection
from typing import Protocol

from pydantic import JsonValue

from ductile_gateway.calls import results
from ductile_gateway.calls.artifacts import (
    artifact_arguments,
    content_type_of,
    name_in,
    named_digest,
    sha256_of,
    text_in,
    wanted_name,
)
from ductile_gateway.calls.call import Answer, Asked, ToolOutcome, Verdict, failed
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.calls.results import UNSEEN, Kept
from ductile_gateway.ports import Artifacts, Bus, CannotKeep, Observer, Ownership
from groundwork.service.errors import NoRoom, TryAgain
from groundwork.service.machine import utc_now
from schemas import subjects
from schemas.catalog import ToolCommand
from schemas.values import dataclass

_CHANGED = (
    "{argument}: what is stored as {path} is not what its tool made, by its SHA-256: somebody has replaced it, and the "
    "tool was not given it"
)

TELL_AGAIN_S = 1.0

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Answers:
    ledger: Ledger
    artifacts: Artifacts
    bus: Bus
    ownership: Ownership
    observer: Observer

    async def record(self, asked: Asked, outcome: ToolOutcome) -> Answer:
        """The answer to an outcome, durable; or the one that is there already. Raises Misconfigured once another
        gateway owns the bus."""
        answer = None
        try:
            outcome = results.made_fit(outcome)
            answer = results.answer_to(asked, outcome, await self._keep(asked, outcome), at=utc_now())
        except NoRoom as error:
            outcome = results.without_room(outcome, str(error))
        except (CannotKeep, ValueError, RecursionError) as error:  # numbers without end, levels without number
            why = error if isinstance(error, CannotKeep) else type(error).__name__
            message = f"the tool has run, but what it brought cannot be kept: {why}"
            outcome = failed("bad_output", message, retryable=False)
        answer = answer or results.answer_to(asked, outcome, (), at=utc_now())
        with contextlib.suppress(TryAgain):
            await self.ownership.held()
        answer = await self.ledger.answer(answer)
        self.observer.answered(asked, outcome)
        return answer

    async def publish(self, answer: Answer) -> None:
        headers = results.headers_of(answer)
        await self.bus.publish(subjects.TOOL_RESULT, answer.body, key=answer.dedupe_key, headers=headers)

    async def tell_late(self, key: str, verdict: Verdict) -> bool:
        """Publish what came of a call that was answered at its deadline. False while it is not answered yet."""
        answer = await self.ledger.find(key)
        if not isinstance(answer, Answer):
            return False
        log.warning("a late result", extra=answer.facts() | {"ended": getattr(verdict, "status", str(verdict))})
        if isinstance(verdict, ToolOutcome) and (late := results.late_answer(answer, verdict)):
            await self.publish(late)
        return True

    async def arguments(self, asked: Asked, command: ToolCommand | None) -> dict[str, JsonValue] | ToolOutcome:
        """Those of the request, with contents in the place of the paths of artifacts; or why they cannot be given."""
        request = asked.request
        if command is None:
            return failed("not_allowed", f"tool {request.tool} has no such command any more", retryable=False)
        payload = dict(request.tool_payload)
        for argument, path in artifact_arguments(command, payload).items():
            name = name_in(path) or ""
            content = await self.artifacts.get(request.run_id, name)
            if content is None:
                return failed("not_found", f"{argument}: this run has no artifact {path}", retryable=False)
            recorded = await self.ledger.digest_of(request.run_id, name) or named_digest(name)
            if not sha256_of(content).startswith(recorded):
                log.error("an artifact was replaced", extra=asked.facts() | {"path": path})
                return failed("artifact_changed", _CHANGED.format(argument=argument, path=path), retryable=False)
            text = text_in(name, content)
            if text is None:
                return failed("invalid_arguments", f"{argument}: {path} is not text", retryable=False)
            payload[argument] = {"path": path, "content_type": content_type_of(name), "text": text}
        return payload

    async def _keep(self, asked: Asked, outcome: ToolOutcome) -> tuple[Kept, ...]:
        if not outcome.artifacts:
            return ()
        run_id = asked.request.run_id
        wanted = [wanted_name(artifact, asked, place=place) for place, artifact in enumerate(outcome.artifacts)]
        names = await self.ledger.name_artifacts(run_id, asked.key, wanted, at=utc_now())
        kept = tuple(Kept(name, artifact) for name, artifact in zip(names, outcome.artifacts, strict=True))
        for one in kept:
            await self.artifacts.put(run_id, one.name, one.artifact.content, one.artifact.content_type)
        return kept


class Remembers(Protocol):
    def remembered(self) -> Collection[str]: ...

    async def end_of(self, key: str) -> Verdict: ...

    async def forget(self, key: str) -> None: ...


async def tell_of_left_over(runner: Remembers, answers: Answers) -> None:
    left = set(runner.remembered())
    while left:
        found = await asyncio.gather(*(_tell(key, runner, answers) for key in left), return_exceptions=True)
        for key, error in zip(list(left), found, strict=True):
            if not isinstance(error, TryAgain):
                left.discard(key)
            if isinstance(error, Exception):
                log.warning("the end of a call is not told yet", extra={"call": key, "why": str(error)})
        await asyncio.sleep(TELL_AGAIN_S if left else 0)


async def _tell(key: str, runner: Remembers, answers: Answers) -> None:
    if not isinstance(await answers.ledger.find(key), Answer):
        return
    verdict = await runner.end_of(key)
    if isinstance(verdict, ToolOutcome) and verdict.error_class not in UNSEEN:
        await answers.tell_late(key, verdict)
    await runner.forget(key)
