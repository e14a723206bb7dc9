"""Whether the stored runs can be read: one that cannot be is left alone by the agent, and the others go on."""

from datetime import UTC, datetime

from agent_service.cli.doctor.check import Check, ok, wrong
from agent_service.errors import Damaged
from agent_service.store.sqlite import SqliteStore

ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
MOST_NAMED = 5


async def damage(store: SqliteStore, *, all_runs: bool) -> Check:
    """Every row of the runs that go on, or of all."""
    run_ids = await store.unsettled(ALWAYS if all_runs else datetime.now(UTC))
    found = [what for run_id in run_ids if (what := await _wrong_with(store, run_id))]
    if not found:
        return ok("runs", f"{len(run_ids)} {'of all' if all_runs else 'that go on'}, all can be read")
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    remedy = "stop the agent and restore the database from a backup: until then these runs are left alone"
    return wrong("runs", f"damaged: {', '.join(found[:MOST_NAMED])}{more}", remedy=remedy)


async def _wrong_with(store: SqliteStore, run_id: str) -> str:
    try:
        await store.load(run_id)
        for entry in await store.entries(run_id):
            entry.decoded()
    except Damaged as error:
        return f"{run_id} ({error.what})"
    except ValueError as error:
        return str(error)
    return ""
