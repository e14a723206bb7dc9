"""Watches whether the bus and the disk of the store can take new runs; while they cannot, starts are refused.

Only streams that refuse when they are full count, except AGENTIC_STARTS, which callers of the API do not fill.
"""

import asyncio
import logging
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agent_service.admission.limits import FULL_S, QUEUED_S, Capacity
from agent_service.bus.topology import CONSUMED
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.machine import set_within
from schemas import subjects

OF_STORES = (subjects.STREAM_RUNS, subjects.STREAM_LEDGER, subjects.STREAM_TURNS)
CHECK_S, CHECK_SHARED_S, RECHECK_S = 30.0, 120.0, 1.0
"""Seconds between checks: of one agent, of each of several, and while there is trouble."""
ANSWER_WITHIN_S = 2.0
NEARLY_FULL = 0.8
LEAST_FREE_BYTES, LEAST_FREE = 256 * 1024 * 1024, 0.05

UNANSWERED_S = 5.0
"""A server that answers requests but stores nothing for so long is taken to hold on to an error of its disk."""
CANNOT_WRITE = "NATS cannot write: it keeps an earlier error of its disk"
RESTART = "make room there, then restart it: `systemctl restart agentic-nats`"

log = logging.getLogger(__name__)


async def watch_capacity(capacity: Capacity, link: NatsLink, folder: Path, *, shared: bool = False) -> None:
    """Updates `capacity` until cancelled: periodically, and at once after a refused write.

    `folder` is the store's; a `shared` store has streams, too.
    """
    while True:
        link.store_failed.clear()
        full, leaderless = await check(link, folder, shared=shared)
        without = f"no server leads {', '.join(leaderless)}, or none answers in time, so nothing can be stored there"
        trouble = "; ".join([*([without] if leaderless else []), *full])
        if not link.connected:  # nothing is known of the streams, so what was wrong stays so
            trouble = trouble or capacity.trouble
        if trouble != capacity.trouble:
            log.warning("no runs are accepted" if trouble else "runs are accepted again", extra={"why": trouble})
        capacity.say(trouble, again_s=QUEUED_S if leaderless else FULL_S)
        await asyncio.sleep(RECHECK_S)
        if not trouble:
            await set_within(link.store_failed, CHECK_SHARED_S if shared else CHECK_S)


async def check(link: NatsLink, folder: Path, *, shared: bool = False) -> tuple[list[str], list[str]]:
    """Troubles of disk and streams, and the names of streams without a leader."""
    names = [*(name for name in CONSUMED if name != subjects.STREAM_STARTS), *(OF_STORES if shared else ())]
    infos = dict(zip(names, await asyncio.gather(*(_info(link, name) for name in names)), strict=True))
    full = [text for info in infos.values() for text in stream_trouble(info)]
    troubles = [*disk_trouble(folder), *_write_trouble(link, infos.values()), *full]
    return troubles, [name for name, info in infos.items() if is_leaderless(info)]


def _write_trouble(link: NatsLink, infos: Iterable[dict[str, Any]]) -> Iterator[str]:
    alone = any(info.get("config", {}).get("num_replicas") == 1 for info in infos)
    if alone and link.unanswered_s > UNANSWERED_S:
        yield f"{CANNOT_WRITE}: {RESTART}"


async def _info(link: NatsLink, name: str) -> dict[str, Any]:
    try:
        return await link.ask_jetstream(f"STREAM.INFO.{name}", timeout_s=ANSWER_WITHIN_S)
    except TryAgain:
        return {"cluster": {}} if link.connected else {}
    except Failure:  # the stream does not exist, or this login may not ask for it
        return {}


def is_leaderless(info: dict[str, Any]) -> bool:
    return "cluster" in info and not info["cluster"].get("leader")


def stream_trouble(info: dict[str, Any]) -> Iterator[str]:
    config = info.get("config", {})
    most, has = config.get("max_bytes", -1), info.get("state", {}).get("bytes", 0)
    if config.get("discard") == "new" and most > 0 and has >= NEARLY_FULL * most:
        name, full = config["name"], f"{100 * has / most:.0f} %"
        prune = ", or delete ended runs with `agentic prune`" if name == subjects.STREAM_RUNS else ""
        yield f"stream {name} is {full} full: raise its limit, `nats stream edit {name} --max-bytes=...`{prune}"


def disk_trouble(folder: Path) -> Iterator[str]:
    disk = shutil.disk_usage(folder)
    if disk.free < min(LEAST_FREE_BYTES, LEAST_FREE * disk.total):
        yield f"the disk of {folder} has only {disk.free >> 20} MiB left: make room on it"
