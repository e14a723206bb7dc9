"""Health of the bus: findings about server and dead letters, levels as metrics, and whether it can take new runs.

Starts are refused while bus or disk have no room. Only streams that refuse when they are full count, except
AGENTIC_STARTS, which callers of the API do not fill.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from agent_service.admission.limits import FULL_S, QUEUED_S, Capacity
from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.bus.topology import CONSUMED, topology
from agent_service.history.text import ok, warning, wrong
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.machine import set_within
from groundwork.telemetry.metrics import Attributes, Instruments
from schemas import subjects
from schemas.status import Finding, counted

OLDEST_SERVER = (2, 14, 0)
SMALLEST_PAYLOAD = 1 << 20
ANSWER_WITHIN_S = 2.0
LEVELS_WITHIN_S = 1.5

OF_STORES = (subjects.STREAM_RUNS, subjects.STREAM_LEDGER, subjects.STREAM_TURNS)
CHECK_S, CHECK_SHARED_S, RECHECK_S = 30.0, 120.0, 1.0
"""Seconds between checks of the room: of one agent, of each of several, and while there is trouble."""
NEARLY_FULL = 0.8
LEAST_FREE_BYTES, LEAST_FREE = 256 * 1024 * 1024, 0.05
UNANSWERED_S = 5.0
"""A server that answers requests but stores nothing for so long is taken to hold on to an error of its disk."""
CANNOT_WRITE = "NATS cannot write: it keeps an earlier error of its disk"
RESTART = "make room there, then restart it: `systemctl restart agentic-nats`"

log = logging.getLogger(__name__)

Info = Mapping[str, Any]
Levels = dict[str, tuple[str, str, Callable[[Info], float | None]]]


def server(link: NatsLink) -> Finding:
    text = f"nats-server {link.server_version} at {link.servers}"
    if tuple(map(int, link.server_version.split("."))) < OLDEST_SERVER:
        return wrong("nats", text, remedy="install nats-server 2.14 or newer")
    if link.max_payload < SMALLEST_PAYLOAD:
        remedy = f"set max_payload to {SMALLEST_PAYLOAD} on the server: larger results would be refused"
        return warning("nats", f"{text}, messages of at most {link.max_payload} bytes", remedy=remedy)
    return ok("nats", text)


async def jetstream(link: NatsLink) -> Finding:
    try:
        await link.ask_jetstream("INFO", timeout_s=ANSWER_WITHIN_S)
    except TryAgain as error:
        remedy = "wait for the servers, or enable it: `jetstream {}` in the server's file"
        return wrong("jetstream", str(error), remedy=remedy)
    except Failure as error:
        return wrong("jetstream", str(error), remedy="correct that at the server, or give this login the permission")
    return ok("jetstream", "JetStream answers")


async def dead_letters(letters: NatsDeadLetters) -> Finding:
    try:
        waiting = [letter for letter in await letters.all() if not letter.settled]
    except Failure as error:
        return warning("dead letters", str(error), remedy="give this login the permission, or ask again later")
    if waiting:
        newest = waiting[-1].subject[:80]
        text = f"{counted(len(waiting), 'messages')} could not be handled, the newest on {newest}"
        return warning("dead letters", text, remedy="retry or drop each: `agentic inbox` names the commands")
    return ok("dead letters", "none is open")


def _fill(info: Info) -> float | None:
    most = info["config"].get("max_bytes", -1)
    return float(info["state"]["bytes"] / most) if most > 0 else None


STREAMS: Levels = {
    "messages": ("Messages in a stream or bucket", "{message}", lambda info: info["state"]["messages"]),
    "size": ("Size of a stream or bucket", "By", lambda info: info["state"]["bytes"]),
    "fill": ("The part of its most bytes that it has", "1", _fill),
}
CONSUMERS: Levels = {
    "pending": ("Messages not delivered yet", "{message}", itemgetter("num_pending")),
    "ack_pending": ("Messages in hand", "{message}", itemgetter("num_ack_pending")),
    "redelivered": ("Messages in hand that were delivered before", "{message}", itemgetter("num_redelivered")),
}


def observe_bus(instruments: Instruments, link: NatsLink, *, shared: bool = False) -> None:
    expected, letters = topology(shared=shared), NatsDeadLetters(link)
    _observe(instruments, link, "stream", [one.stream for one in expected if not one.consumer], STREAMS)
    consumers = [f"{one.stream}.{one.consumer}" for one in expected if one.consumer]
    _observe(instruments, link, "consumer", consumers, CONSUMERS)

    async def unsettled() -> float:
        return sum(not letter.settled for letter in await letters.all())

    instruments.levels(("agentic.dead_letters", "Unsettled dead letters", "{message}", unsettled))


def _observe(instruments: Instruments, link: NatsLink, kind: str, names: Sequence[str], levels: Levels) -> None:
    """`names`: subjects of the JetStream API after `<KIND>.INFO.`."""
    gauges = (
        instruments.gauge(f"agentic.{kind}.{name}", text, f"agentic.{kind}", unit=unit)
        for name, (text, unit, _) in levels.items()
    )

    async def read() -> tuple[Mapping[Attributes, float], ...]:
        asked = (link.ask_jetstream(f"{kind.upper()}.INFO.{name}", timeout_s=LEVELS_WITHIN_S) for name in names)
        answers = zip(names, await asyncio.gather(*asked, return_exceptions=True), strict=True)
        infos = {(name.rpartition(".")[2],): info for name, info in answers if not isinstance(info, BaseException)}
        found = ({series: level(info) for series, info in infos.items()} for _, _, level in levels.values())
        return tuple({series: value for series, value in of.items() if value is not None} for of in found)

    instruments.observe(read, *gauges)


async def watch_capacity(capacity: Capacity, link: NatsLink, folder: Path, *, shared: bool = False) -> None:
    """Updates `capacity` until cancelled: periodically, and at once after a refused write.

    `folder` is the store's; a `shared` store has streams, too.
    """
    names = [*(name for name in CONSUMED if name != subjects.STREAM_STARTS), *(OF_STORES if shared else ())]
    while True:
        link.store_failed.clear()
        infos = dict(zip(names, await asyncio.gather(*(_info_of(link, name) for name in names)), strict=True))
        leaderless = [name for name, info in infos.items() if "cluster" in info and not info["cluster"].get("leader")]
        trouble = "; ".join(_troubles(link, folder, leaderless, infos.values()))
        if not link.connected:  # nothing is known of the streams, so what was wrong stays so
            trouble = trouble or capacity.trouble
        if trouble != capacity.trouble:
            log.warning("no runs are accepted" if trouble else "runs are accepted again", extra={"why": trouble})
        capacity.say(trouble, again_s=QUEUED_S if leaderless else FULL_S)
        await asyncio.sleep(RECHECK_S)
        if not trouble:
            await set_within(link.store_failed, CHECK_SHARED_S if shared else CHECK_S)


def _troubles(link: NatsLink, folder: Path, leaderless: Sequence[str], infos: Collection[Info]) -> Iterator[str]:
    if leaderless:
        yield f"no server leads {', '.join(leaderless)}, or none answers in time, so nothing can be stored there"
    yield from disk_trouble(folder)
    alone = any(info.get("config", {}).get("num_replicas") == 1 for info in infos)
    if alone and link.unanswered_s > UNANSWERED_S:
        yield f"{CANNOT_WRITE}: {RESTART}"
    for info in infos:
        yield from stream_trouble(info)


async def _info_of(link: NatsLink, name: str) -> Info:
    try:
        return await link.ask_jetstream(f"STREAM.INFO.{name}", timeout_s=ANSWER_WITHIN_S)
    except TryAgain:
        return {"cluster": {}} if link.connected else {}
    except Failure:  # the stream does not exist, or this login may not ask for it
        return {}


def stream_trouble(info: Info) -> Iterator[str]:
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
