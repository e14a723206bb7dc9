"""Starts a NATS server, the gateway with the demo tools, and the agent, and restarts each process that dies."""

import asyncio
import json
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

import httpx2

from agent_service.bus.health import disk_trouble
from agent_service.bus.topology import topology
from agent_service.workbench.dev_settings import LOGIN_FILE, DevOptions, write_settings
from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import set_up
from groundwork.service import store_folder
from groundwork.service.errors import Exit, Misconfigured
from groundwork.service.process import ending_with_us
from groundwork.service.program import own_command
from schemas.values import dataclass, replace

READY_WITHIN_S = 120.0
WAITS = {"agent": "the agent", "bus": "NATS", "skills": "the tools of the gateway", "room": "room on the disk"}
MAX_CONFIG_FAILURES = 3
"""Consecutive starts with exit code 78 before a service counts as misconfigured. One such start may only have met the
lock of its predecessor."""
POLL_S = 0.05
RESTART_PAUSE_S = 0.5
STOP_WITHIN_S = 10.0
STORY = Path(str(resources.files("agent_service") / "scripts" / "story"))
"""Story of `agentic demo`, and of `agentic dev` without a model: a script, two local pages, and a tool with an outbox
and a slow command."""
OUTBOX = "outbox"
COMPARE_S = 15

log = logging.getLogger(__name__)


class Service:
    def __init__(self, name: str, package: str, folder: Path, config: Path) -> None:
        self.name = name
        self.starts = 0
        self.config_failures = 0
        self.log_file = folder / "logs" / f"{name}.log"
        self.log_file.touch(mode=0o600)
        self.log_begins = self.log_file.stat().st_size
        self._command = own_command(package, "serve", "--config", str(config))
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    def kill(self) -> None:
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def failure_text(self) -> str:
        critical = ""
        for line in self.log_file.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):  # what a library or the system wrote there
                entry = json.loads(line)
                critical = entry["msg"] if entry["level"] == "CRITICAL" else critical
        return f"{critical} ({self.log_file})" if critical else f"see {self.log_file}"

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self._once()
                except OSError as error:
                    log.warning("%s cannot be started, and is tried again: %s", self.name, error)
                await asyncio.sleep(RESTART_PAUSE_S)
        finally:
            await self._stop()

    async def _once(self) -> None:
        with self.log_file.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *ending_with_us(self._command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us: we end them in good order
            )
        self.starts += 1
        code = await self._process.wait()
        self.config_failures = self.config_failures + 1 if code == Exit.MISCONFIGURED else 0
        log.warning("%s ended (%d) and is started again; its log is %s", self.name, code, self.log_file)

    async def _stop(self) -> None:
        if self._process and self.pid is not None:
            self._process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), STOP_WITHIN_S)
            self.kill()
            await self._process.wait()


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

    def check(self) -> None:
        """Raises Misconfigured once a service cannot start, with its log message."""
        for service in (self.gateway, self.agent):
            if service.config_failures >= MAX_CONFIG_FAILURES:
                raise Misconfigured(f"the {service.name} cannot start: {service.failure_text()}")


@asynccontextmanager
async def stack(options: DevOptions, on_wait: Callable[[str], object] = str) -> AsyncIterator[DevStack]:
    """Starts everything and stops it on exit. `on_wait` gets what the start waits for, whenever that changes. Raises
    Misconfigured with the log message of a service that cannot start."""
    options = replace(options, folder=options.folder.resolve())
    folder, http_port = options.folder, options.http_port or free_port()
    store_folder.restrict_to_owner(folder)
    async with AsyncExitStack() as opened:
        if options.story:
            options = opened.enter_context(_with_story(options))
        nats = EmbeddedNats(folder / "nats", port=options.nats_port, sync_interval=options.sync_interval)
        await opened.enter_async_context(nats)
        async with connect(NatsSettings(urls=(nats.url,)), "agentic-setup") as link:
            await set_up(link, topology(max_gib=1), changes=lambda _: True)
        config = await write_settings(options, nats.url, http_port, free_port())
        store_folder.write(folder / LOGIN_FILE, f"{nats.url}\n")
        store_folder.restrict_to_owner(folder / "logs")
        made = DevStack(
            options=options,
            config=config,
            login=folder / LOGIN_FILE,
            url=f"http://127.0.0.1:{http_port}",
            nats=nats,
            agent=Service("agent", "agent_service", folder, config),
            gateway=Service("gateway", "ductile_gateway", folder, config),
        )
        await opened.enter_async_context(
            in_background(_supervise_nats(nats, folder), made.gateway.run(), made.agent.run())
        )
        await until_ready(made, on_wait)
        yield made


async def _supervise_nats(nats: EmbeddedNats, folder: Path) -> None:
    is_stuck = False
    while True:
        await asyncio.sleep(RESTART_PAUSE_S)
        try:
            is_stuck = nats.failed_to_store() or is_stuck
            if nats.died:
                log.warning("NATS ended and is started again")
                nats.kill()
            elif is_stuck and not any(disk_trouble(folder)):
                log.warning("there is room again: NATS, which keeps an error of its disk, is started anew")
                await nats.stop()
                is_stuck = False
            await nats.start()  # at once, where it runs
        except (Misconfigured, OSError) as error:
            log.warning("NATS cannot be started", extra={"why": str(error)})


@asynccontextmanager
async def in_background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    running = [asyncio.ensure_future(service) for service in work]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def until_ready(made: DevStack, on_wait: Callable[[str], object] = str) -> None:
    """Raises Misconfigured with the reason if the agent does not become ready."""
    failed, shown = dict[str, str](), ""
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False, timeout=5) as client:
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                while True:
                    if not (failed := await _failed_checks(client)):
                        return
                    if (waits := ", ".join(WAITS.get(name, name) for name in failed)) != shown:
                        on_wait(shown := waits)
                    made.check()
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            reason = "; ".join(f"{name}: {why}" for name, why in failed.items())[:500]
            logs = made.options.folder / "logs"
            raise Misconfigured(f"not ready within {READY_WITHIN_S:g} s ({reason}); see {logs}") from error


async def _failed_checks(client: httpx2.AsyncClient) -> dict[str, str]:
    """Failed readiness checks and their reasons. A kill switch that is on does not count."""
    try:
        checks = (await client.get("/readyz")).json()["checks"]
    except (httpx2.TransportError, ValueError, LookupError) as error:
        return {"agent": str(error) or "no answer"}
    return {name: trouble for name, trouble in checks.items() if trouble != "ok" and name != "halt"}


def free_port() -> int:
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class _Pages(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


@contextmanager
def _with_story(options: DevOptions) -> Iterator[DevOptions]:
    folder = options.folder
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, directory=str(STORY / "pages"))) as server:
        threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True).start()
        script = (STORY / "script.yaml").read_text(encoding="utf-8")
        pages = f"http://127.0.0.1:{server.server_port}"
        store_folder.write(folder / "story.yaml", script.replace("PAGES", pages))
        store_folder.restrict_to_owner(folder / OUTBOX)
        letters = {"outbox": folder / OUTBOX, "compare_s": COMPARE_S}
        try:
            yield replace(
                options,
                script=folder / "story.yaml",
                plugins=(*options.plugins, STORY / "tools"),
                plugin_config={"fetch": {"allow_private": True}, "letters": letters, **options.plugin_config},
            )
        finally:
            server.shutdown()
