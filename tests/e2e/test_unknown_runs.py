"""A message about a run that is not in this store is not acknowledged away: it is tried again, then a dead letter."""

import time
from pathlib import Path
from typing import Any

from nats.js.api import RawStreamMsg

from schemas import subjects
from tests.e2e.by_hand import Bench, bench, one_step
from tests.kit.waiting import until

ELSEWHERE = {"run_id": "run_elsewhere"}
RESULT = {
    **ELSEWHERE,
    "step": 1,
    "tool": "look",
    "status": "ok",
    "result": {"summary": "seen"},
    "completed_at": "2026-11-21T12:00:00Z",
}
PAYLOADS: dict[str, dict[str, Any]] = {
    subjects.TOOL_RESULT: RESULT,
    subjects.CANCEL: ELSEWHERE,
    subjects.SIGNAL: {**ELSEWHERE, "signal_id": "s1", "kind": "resume"},
    subjects.START: {**ELSEWHERE, "goal": "record", "wake_id": "theirs"},
}


async def dead_letters(made: Bench) -> list[RawStreamMsg]:
    jetstream = made.link.jetstream
    last = (await jetstream.stream_info(subjects.STREAM_DEAD_LETTERS)).state.last_seq
    found = [await jetstream.get_msg(subjects.STREAM_DEAD_LETTERS, seq) for seq in range(1, last + 1)]
    return [letter for letter in found if (letter.subject or "").startswith("agentic.dlq.")]


async def have_died(made: Bench, number: int) -> bool:
    return len(await dead_letters(made)) >= number


async def test_it_is_tried_for_some_seconds_and_then_kept_with_the_reason(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("look")) as made:
        began = time.monotonic()
        for subject, payload in PAYLOADS.items():
            await made.publish(subject, {"type": subject, "payload": payload})
        await until(lambda: have_died(made, 1), within_s=15)
        took = time.monotonic() - began
        await until(lambda: have_died(made, len(PAYLOADS)), within_s=15)
        letters = await dead_letters(made)
        runs = await made.runs()
    headers = [letter.headers or {} for letter in letters]
    assert {told["Dead-Letter-Subject"] for told in headers} == set(PAYLOADS)
    assert all("no run run_elsewhere here" in told["Dead-Letter-Reason"] for told in headers)
    assert {told["Dead-Letter-Deliveries"] for told in headers} == {"6"}
    assert took > 4.5
    assert runs == []
