"""`agentic prune` on a disk of which the last byte is used."""

import asyncio
import json
from pathlib import Path

import pytest

from agent_service.store.sql.database import FILE
from groundwork.sqlite.reserve import reserved
from tests.cli.calling import agentic_here
from tests.cli.test_records import opened
from tests.kit.disks import small_disk
from tests.kit.runs import whole_run
from tests.ports.stores import stored

RUNS = 40


async def with_runs(folder: Path) -> None:
    async with opened(folder) as store:
        for number in range(1, RUNS + 1):
            last = await stored(store, whole_run(number))
            store.told(last.entry.run_id, last.entry.seq)


def test_on_a_disk_of_which_the_last_byte_is_used_runs_go_and_what_is_kept_for_that_is_there_again(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", "12m") as disk:
        folder = disk / "agent"
        asyncio.run(with_runs(folder))
        kept = reserved(folder / FILE)
        config = tmp_path / "agentic.yaml"
        agent = {"store": str(folder), "workspaces": str(disk / "workspaces"), "keep_runs": {"done_days": 1}}
        config.write_text(json.dumps({"nats": {"urls": ["nats://127.0.0.1:1"]}, "agent": agent}))
        with pytest.raises(OSError, match="No space"):
            (disk / "of-somebody-else").write_bytes(bytes(12 << 20))
        called = agentic_here("prune", "--url", "http://127.0.0.1:1", "--config", config, COLUMNS="200")
        assert (called.code, f"{RUNS} runs went" in called.out) == (0, True), called
        assert reserved(folder / FILE) >= kept
