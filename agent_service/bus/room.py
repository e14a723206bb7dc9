"""How much room is left on the bus and on the disk of the store, looked at every few seconds.

Only what refuses new work when it is full counts: of most streams the oldest gives way. Starts that wait fill a stream
of their own, which is no matter of callers of the API.
"""

import asyncio
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_service.bus.streams import CONSUMED
from agent_service.room import Room
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from schemas import subjects

OF_STORES = (subjects.STREAM_RUNS, subjects.STREAM_LEDGER)
LOOK_S = 5.0
NEARLY_FULL = 0.8
LEAST_FREE_BYTES, LEAST_FREE = 256 * 1024 * 1024, 0.05
"""Of the disk of the store: the smaller of both is left for what is under way."""

log = logging.getLogger(__name__)


async def keep_room(room: Room, link: NatsLink, folder: Path, *, shared: bool = False) -> None:
    """Keep `room.trouble` true, for ever. `folder`: the store's; one that is `shared` is in streams too."""
    while True:
        trouble = await look(link, folder, shared=shared)
        if trouble != room.trouble:
            log.warning("no runs are accepted" if trouble else "runs are accepted again", extra={"why": trouble})
        room.trouble = trouble
        await asyncio.sleep(LOOK_S)


async def look(link: NatsLink, folder: Path, *, shared: bool = False) -> str:
    """What is nearly full, and what to do now; empty while there is room."""
    names = [*(name for name in CONSUMED if name != subjects.STREAM_STARTS), *(OF_STORES if shared else ())]
    infos = await asyncio.gather(*(_info(link, name) for name in names))
    return "; ".join([*_of_disk(folder), *(found for info in infos for found in of_stream(info))])


async def _info(link: NatsLink, name: str) -> dict[str, Any]:
    """Empty where there is no such stream, or no answer now: that is for others to tell."""
    try:
        answer: dict[str, Any] = json.loads(await link.request(f"$JS.API.STREAM.INFO.{name}", b""))
    except TryAgain:
        return {}
    return answer


def of_stream(info: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a stream, by what JetStream says of it."""
    config = info.get("config", {})
    most, has = config.get("max_bytes", -1), info.get("state", {}).get("bytes", 0)
    if config.get("discard") == "new" and most > 0 and has >= NEARLY_FULL * most:
        name, full = config["name"], f"{100 * has / most:.0f} %"
        yield f"stream {name} is {full} full: raise its limit, `nats stream edit {name} --max-bytes=...`, or purge it"


def _of_disk(folder: Path) -> Iterator[str]:
    disk = shutil.disk_usage(folder)
    if disk.free < min(LEAST_FREE_BYTES, LEAST_FREE * disk.total):
        yield f"the disk of {folder} has only {disk.free >> 20} MiB left: make room on it"
