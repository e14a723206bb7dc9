"""A NATS server, the gateway with the demo tools, and the agent, each a process that is restarted when it dies."""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any

import httpx2

from agent_service.bus.room import of_disk
from agent_service.bus.topology import topology
from agent_service.cli.whereabouts import LOGIN_OF_DEV
from agent_service.workbench.dev_settings import NOTHING_TAKEN, Taken, as_data, check
from groundwork.nats import link as nats_link
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import set_up
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from groundwork.service.exits import Exit
from groundwork.service.installed import shipped
from groundwork.service.json_log import Outage
from groundwork.service.process import tied_to_us
from schemas.values import dataclass, replace

READY_WITHIN_S = 120.0
REFUSALS = 3
"""Starts in a row that ended with 78, after which a service is known to need a mend. One may be over a lock that an
earlier one still holds."""
LOOK_S = 0.05
RESTART_PAUSE_S = 0.5
STOP_WITHIN_S = 10.0
PLUGINS = shipped("deploy", "ductile", "plugins")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    folder: Path
    nats_port: int = 0
    http_port: int = 0
    script: Path | None = None
    plugins: tuple[Path, ...] = (PLUGINS,)
    plugin_config: Mapping[str, Any] = field(default_factory=dict)
    sync_interval: str = "always"
    agent: Mapping[str, Any] = field(default_factory=dict)
    gateway: Mapping[str, Any] = field(default_factory=dict)
    taken: Taken = NOTHING_TAKEN


class Service:
    def __init__(self, name: str, command: tuple[str, ...], log_file: Path) -> None:
        self.name = name
        self.starts = 0
        self.refusals = 0
        """How often in a row it ended because something has to be mended first."""
        self.started_at = 0.0
        """By the wall clock, in seconds: when the newest process was asked for."""
        self.log_file = log_file
        self.log_begins = log_file.stat().st_size if log_file.exists() else 0
        self._command = command
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    def kill(self) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def complaint(self) -> str:
        critical = ""
        for line in self.log_file.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):  # what a library or the system wrote there
                told = json.loads(line)
                critical = told["msg"] if told["level"] == "CRITICAL" else critical
        return f"{critical} ({self.log_file})" if critical else f"see {self.log_file}"

    async def run(self) -> None:
        try:
            while True:
                await self._once()
                await asyncio.sleep(RESTART_PAUSE_S)
        finally:
            await self._stop()

    async def _once(self) -> None:
        self.log_file.touch(mode=0o600)
        with self.log_file.open("ab") as output:
            self.started_at = time.time()
            self._process = await asyncio.create_subprocess_exec(
                *tied_to_us(list(self._command)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us: we end them in good order
            )
        self.starts += 1
        code = await self._process.wait()
        self.refusals = self.refusals + 1 if code == Exit.MISCONFIGURED else 0
        log.warning("%s ended (%d) and is started again; its log is %s", self.name, code, self.log_file)

    async def _stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_WITHIN_S)
        except TimeoutError:
            process.kill()
            await process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class DevStack:
    options: DevOptions
    config: Path
    login: Path
    url: str
    nats: EmbeddedNats
    agent: Service
    gateway: Service

    @property
    def workspaces(self) -> Path:
        return self.options.folder / "workspaces"


@asynccontextmanager
async def stack(options: DevOptions) -> AsyncIterator[DevStack]:
    """Start everything, and stop it at the end. Raises Misconfigured with the log of what cannot start."""
    options = replace(options, folder=options.folder.resolve())
    folder = options.folder
    store_folder.closed(folder)
    http_port = options.http_port or free_port()
    async with EmbeddedNats(folder / "nats", port=options.nats_port, sync_interval=options.sync_interval) as nats:
        await _set_up(nats.url)
        config = _write_config(folder, options, nats.url, http_port)
        await check(config, options.taken)
        store_folder.write(folder / LOGIN_OF_DEV, f"{nats.url}\n")
        store_folder.closed(folder / "logs")
        made = DevStack(
            options=options,
            config=config,
            login=folder / LOGIN_OF_DEV,
            url=f"http://127.0.0.1:{http_port}",
            nats=nats,
            agent=_service("agent", "agent_service", folder, config),
            gateway=_service("gateway", "ductile_gateway", folder, config),
        )
        async with _kept_running(_keep_nats(nats, folder), made.gateway.run(), made.agent.run()):
            await until_ready(made)
            yield made


async def _keep_nats(nats: EmbeddedNats, folder: Path) -> None:
    is_stuck = is_down = False
    outage = Outage("NATS", log)
    while True:
        await asyncio.sleep(RESTART_PAUSE_S)
        is_stuck = nats.failed_to_store() or is_stuck
        if nats.died:
            log.warning("NATS ended and is started again")
            nats.kill()
            is_down = True
        elif is_stuck and not list(of_disk(folder)):
            log.warning("there is room again: NATS, which keeps an error of its disk, is started anew")
            await nats.stop()
            is_stuck, is_down = False, True
        if is_down:
            is_down = not await _is_started(nats, outage)


async def _is_started(nats: EmbeddedNats, outage: Outage) -> bool:
    try:
        await nats.start()
    except (Misconfigured, OSError) as error:
        outage.goes_on(str(error))
        return False
    outage.over()
    return True


@asynccontextmanager
async def _kept_running(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    running = [asyncio.ensure_future(service) for service in work]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def until_ready(made: DevStack) -> None:
    """Raises Misconfigured with what is wrong."""
    reason = "no answer"
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False, timeout=5) as client:
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                while True:
                    try:
                        answer = await client.get("/readyz")
                        reason = answer.text
                        if answer.status_code == httpx2.codes.OK or _only_stopped(answer):
                            return
                    except httpx2.TransportError as error:
                        reason = str(error) or reason
                    check_that_both_can_start(made)
                    await asyncio.sleep(LOOK_S)
        except TimeoutError as error:
            logs = made.options.folder / "logs"
            raise Misconfigured(f"not ready within {READY_WITHIN_S:g} s ({reason[:500]}); see {logs}") from error


def check_that_both_can_start(made: DevStack) -> None:
    for service in (made.gateway, made.agent):
        if service.refusals >= REFUSALS:
            raise Misconfigured(f"the {service.name} cannot start: {service.complaint()}")


def _only_stopped(answer: httpx2.Response) -> bool:
    with suppress(ValueError, AttributeError):
        return {name for name, said in answer.json().get("checks", {}).items() if said != "ok"} == {"halt"}
    return False


async def _set_up(url: str) -> None:
    link = await nats_link.connect(NatsSettings(urls=(url,)), name="agentic-setup")
    try:
        await set_up(link, topology(max_gib=1))
    finally:
        await link.close()


def _write_config(folder: Path, options: DevOptions, nats_url: str, http_port: int) -> Path:
    taken = options.taken
    script = {"model": {"provider": "scripted", "script": options.script}} if options.script else {}
    agent = {
        "model": {"provider": "scripted"},
        **taken.agent,
        **as_data(script),
        "store": as_data(folder / "agent"),
        "workspaces": as_data(folder / "workspaces"),
        "http": {"host": "127.0.0.1", "port": http_port},
        **as_data(options.agent),
    }
    gateway = {
        **taken.gateway,
        "store": as_data(folder / "gateway"),
        "http": {"host": "127.0.0.1", "port": free_port()},
        "plugins": _plugins(folder, options),
        **as_data(options.gateway),
    }
    path = folder / "agentic.yaml"
    whole = {"nats": {"urls": [as_data(nats_url)]}, "agent": agent, "gateway": gateway}
    # As it is: YAML takes a character beyond U+FFFF for one that JSON escapes as two.
    store_folder.write(path, json.dumps(whole, indent=2, ensure_ascii=False))
    return path


def _plugins(folder: Path, options: DevOptions) -> dict[str, Any]:
    taken = options.taken
    named = {Path(folder).resolve() for folder in taken.folders()}
    folders = (*taken.folders(), *as_data([path for path in options.plugins if path.resolve() not in named]))
    pages = {"folder": shipped("deploy", "knowledge"), "cache": folder / "knowledge"}
    config = {"knowledge": pages} if PLUGINS in options.plugins else {}
    return {
        "reload": folders != (str(PLUGINS),),
        **taken.plugins(),
        "folders": list(folders),
        "config": as_data(config) | dict(taken.config_of_plugins()) | as_data(options.plugin_config),
        "closed": [*taken.closed(), *as_data([folder / name for name in ("nats", "logs", LOGIN_OF_DEV)])],
    }


def _service(name: str, package: str, folder: Path, config: Path) -> Service:
    command = (sys.executable, "-m", package, "serve", "--config", str(config))
    return Service(name, command, folder / "logs" / f"{name}.log")


def free_port() -> int:
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
