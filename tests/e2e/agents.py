"""Agents and gateways beside another: on the same bus, with a store of their own or with the same."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit.waiting import until


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A process of its own, which nobody starts again."""

    process: asyncio.subprocess.Process
    log: Path

    async def ready(self, *, within_s: float = 60.0) -> str:
        """Where its API answers, once it is ready; empty for a gateway."""
        await until(lambda: bool(_said(self.log, "ready")), within_s=within_s)
        return str(_said(self.log, "ready")[-1].get("http", ""))

    async def ended(self, *, within_s: float = 20.0) -> tuple[int, str]:
        """Its exit code, and what it said at last."""
        code = await asyncio.wait_for(self.process.wait(), within_s)
        assert "Traceback" not in self.log.read_text()
        return code, last_word(self.log)


def another_agent(
    config: Path, *options: str, store: Path | None = None, bus: str = ""
) -> contextlib.AbstractAsyncContextManager[Other]:
    """One that was just started as configured; with a `store` of its own also at an address of its own, and perhaps
    another way to the bus."""
    return _another("agent_service", config if store is None else _with_store(config, store, bus), options)


def another_gateway(
    config: Path, *options: str, store: Path | None = None
) -> contextlib.AbstractAsyncContextManager[Other]:
    """As `another_agent`."""
    return _another("ductile_gateway", config if store is None else _with_store(config, store), options)


@asynccontextmanager
async def _another(package: str, config: Path, options: tuple[str, ...]) -> AsyncIterator[Other]:
    log = config.with_suffix(f".{package}.log")
    command = (sys.executable, "-m", package, "serve", "--config", str(config), *options)
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(*command, stderr=output)
    try:
        yield Other(process=process, log=log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def last_word(log: Path) -> str:
    """What a service said when it ended."""
    told = [line for line in _lines(log) if line["level"] == "CRITICAL"]
    return str(told[-1]["msg"]) if told else ""


def _said(log: Path, message: str) -> list[dict[str, Any]]:
    return [line for line in _lines(log) if line["msg"] == message]


def _lines(log: Path) -> list[dict[str, Any]]:
    lines = []
    for line in log.read_text().splitlines():
        with contextlib.suppress(ValueError):  # one that is being written
            lines.append(json.loads(line))
    return lines


def _with_store(config: Path, store: Path, bus: str = "") -> Path:
    settings = json.loads(config.read_text())
    settings["nats"]["urls"] = [bus] if bus else settings["nats"]["urls"]
    settings["agent"] |= {"store": str(store), "workspaces": str(store / "runs"), "http": {"port": 0}}
    settings["gateway"] = settings.get("gateway", {}) | {"store": str(store / "gateway"), "http": {"port": 0}}
    store.mkdir(parents=True, exist_ok=True)
    path = store.with_suffix(".yaml")
    path.write_text(json.dumps(settings))
    return path
