"""kill -9 of the real gateway after a Ductile has made the jobs of its calls, before their ids arrive.

There are four calls: a write whose plugin hides its call id, one whose plugin shows it, a read, and an idempotent
write.
"""

from pathlib import Path
from typing import Any

from tests.ductile.serving import served
from tests.ductile.under_test import DuctileUnderTest
from tests.kit.cut_wire import Knife
from tests.kit.waiting import until

QUIET: dict[str, Any] = {"do": "say", "says": {}}
CALLS = {
    "silent": ("handle", QUIET, ("in_doubt", 1)),
    "shown": ("handle", {}, ("ok", 1)),
    "read": ("look", QUIET, ("ok", 2)),
    "idempotent": ("note", QUIET, ("ok", 2)),
}
"""Command and payload; ending of the call, and its number of jobs."""


async def test_after_a_kill_no_write_starts_twice_and_each_doubt_is_told(
    tmp_path: Path, ductile: DuctileUnderTest
) -> None:
    wire, keys = Knife(), dict[str, str]()
    accepted = wire.stop_before(rb"HTTP/1\.1 202", "back")
    async with served(tmp_path, ductile, to_ductile=wire.rule, idempotent=["probe/note"], events=False) as home:
        async with home.living() as process:
            for step, (kind, (command, payload, _)) in enumerate(CALLS.items(), start=1):
                keys[kind] = await home.ask(command, payload, step=step)
            await until(lambda: accepted.seen == len(home.known()) == len(CALLS))
            process.kill()
            wire.away()
        async with home.living():
            endings = await home.endings()
    assert {kind: endings[key] for kind, key in keys.items()} == {kind: ending for kind, (*_, ending) in CALLS.items()}
