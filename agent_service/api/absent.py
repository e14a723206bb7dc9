"""Why there is no run to show: it is kept no longer (410), or never was here (404)."""

from agent_service.api.problems import Gone
from agent_service.api.refusals import Refusal
from agent_service.ports import RunStore
from agent_service.tombstones import Tombstone


async def absent(store: RunStore, run_id: str) -> Refusal:
    tombstone = await store.tombstone(run_id)
    return gone(tombstone) if tombstone else Refusal(404, "unknown_run", "there is no run of this id")


def no_such_file() -> Refusal:
    return Refusal(404, "no_such_file", "the run has no such file: its workspace lists those it has")


def gone(tombstone: Tombstone) -> Refusal:
    told = Gone(
        wake_id=tombstone.wake_id,
        status=tombstone.status,
        ended_at=tombstone.ended_at,
        gone_at=tombstone.gone_at,
        rule=tombstone.rule,
    )
    return Refusal(410, "gone", str(tombstone), run_id=tombstone.run_id, gone=told)
