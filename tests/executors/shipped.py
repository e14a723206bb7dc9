"""Runs the executors of deploy/executors/ unchanged on the bus of a whole stack."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.bus.topology import Executor, topology
from agent_service.workbench.dev import DevStack
from groundwork.nats.topology import set_up
from tests.kit import nats_cli
from tests.kit.stack import linked, of_goal, one_after_another, planning, script
from tests.kit.waiting import until

EXECUTORS = Path(__file__).resolve().parent.parent.parent / "deploy" / "executors"


@dataclass(frozen=True, slots=True)
class Shipped:
    """An executor: its command, its offer, its requests and its answers."""

    command: tuple[str, ...]
    executor: str
    tool: str
    arguments: dict[str, Any]
    summary: str

    @contextlib.contextmanager
    def at_work(self, folder: Path, url: str, **more: str) -> Iterator[None]:
        """Runs it with `more` in its environment; kills it and its children at the end."""
        environ = nats_cli.environment(folder, url, LOG=str(folder / f"{self.tool}.log"), **more)
        with (folder / f"{self.tool}.out").open("ab") as out:
            process = subprocess.Popen(self.command, env=environ, stdout=out, stderr=out, start_new_session=True)
            try:
                yield
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


PYTHON = Shipped(
    (sys.executable, str(EXECUTORS / "weekday.py")),
    "weekday-executor",
    "weekday",
    {"date": "2026-11-22"},
    "2026-11-22 is a Sunday",
)
BASH = Shipped(
    (str(EXECUTORS / "count.sh"),),
    "count-executor",
    "count",
    {"text": "two {{ lines }}\nwith $(odd) 'quotes'\n"},
    "2 lines, 7 words, 37 bytes",
)
EACH = pytest.mark.parametrize(
    "shipped",
    [
        pytest.param(PYTHON, id="python"),
        pytest.param(BASH, id="bash", marks=[pytest.mark.natscli, nats_cli.needs_nats_cli]),
    ],
)


def asking(calls: Mapping[str, Sequence[tuple[str, str, dict[str, Any]]]]) -> dict[str, Any]:
    """A script that makes the calls (tool, command, arguments) written for the goal's first words."""
    rules = list[dict[str, Any]]()
    for goal, steps in calls.items():
        plans = [planning(tool, command, **arguments) for tool, command, arguments in steps]
        rules += of_goal(f"^{goal}", *one_after_another(*plans)["rules"][1:])
    return script(*rules)


async def heard(made: DevStack, shipped: Shipped) -> None:
    """Creates its consumer and waits until the agent has its offer; readiness checks make the agent ask."""
    told: set[str] = set()

    async def overhear(message: Any) -> None:
        if message.data.startswith(b'{"executor"'):
            told.add(json.loads(message.data)["executor"])

    async with linked(made.nats.url) as link, httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
        await set_up(link, topology(executors=[Executor.read(f"{shipped.executor}={shipped.tool}")]))
        await link.subscribe("_INBOX.>", overhear)
        await link.client.flush()

        async def is_known() -> bool:
            await client.get("/readyz")
            return shipped.executor in told

        await until(is_known, within_s=30)
