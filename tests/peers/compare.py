"""`make bench-peers` measures the same job on each runtime in turn on this machine and prints JSON.

Each is measured alone, with one run and with 32 concurrent runs: steps per second and median duration of a run, as
the median of several rounds. It also counts the syncs per step (by strace, if installed), and after a kill -9 of all
processes with 32 runs in progress the runs that resumed by themselves and the writes made twice.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any, Self

from tests.bench.usage import children
from tests.peers.job import STEPS, WRITES

AT_A_TIME = (1, 32)
WARM_UP_RUNS = 32
KILLED_RUNS = 32
COUNTED_RUNS = {1: 20, 32: 96}
"""Runs whose syncs are counted."""
HOME = Path(__file__).parents[2]
PEERS = HOME / ".venv" / "peers"
"""Folder in which `make bench-peers` installs their requirements."""
LOOK_S = 0.005
KILLED_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A compared runtime: `python` runs `tests.peers.MODULE` with the arguments. `durable` says how it stores."""

    name: str
    module: str
    durable: str
    arguments: tuple[str, ...] = ()
    python: Path = PEERS / "bin" / "python"
    kills: bool = True
    """False for a tool that writes nothing that could be counted."""

    @property
    def missing(self) -> str:
        """Missing requirements; empty if it can be measured."""
        if not self.python.exists():
            return f"{self.python} is not there: make bench-peers brings it"
        if self.module == "on_restate" and not list(RESTATE.glob("restate-server-*/bin/restate-server")):
            return "no Restate server: make bench-peers brings it where there is npm"
        return ""


RESTATE = PEERS / "node_modules" / "@restatedev"
OURS = "NATS sync_interval always, SQLite WAL synchronous FULL; agent, gateway and server are processes"
ALL = (
    Peer(
        name="agentic",
        module="on_agentic",
        arguments=("function",),
        durable=f"{OURS}; the tool is a function of the gateway",
        python=Path(sys.executable),
        kills=False,
    ),
    Peer(
        name="agentic, a process per call",
        module="on_agentic",
        arguments=("process",),
        durable=f"{OURS}; each call of the tool is a process in a box",
        python=Path(sys.executable),
    ),
    Peer(name="langgraph", module="on_langgraph", durable="SQLite WAL synchronous FULL, durability sync"),
    Peer(name="dbos", module="on_dbos", durable="SQLite rollback journal synchronous FULL, as it opens it"),
    Peer(name="restate", module="on_restate", durable="the log of its server is synced, as it comes"),
)


class Running:
    def __init__(self, peer: Peer, folder: Path, *, before: Sequence[str] = ()) -> None:
        command = [*before, str(peer.python), "-m", f"tests.peers.{peer.module}", str(folder), *peer.arguments]
        with (folder / "stderr.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=HOME,
                env=os.environ | {"RESTATE": str(RESTATE)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._log = folder / "stderr.log"
        self.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def order(self, do: str, prefix: str, number: int, at_a_time: int = 1) -> None:
        what = {"do": do, "prefix": prefix, "number": number, "at_a_time": at_a_time}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Raises RuntimeError with its output if it has ended."""
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"{self._process.args!r} ended: {self._log.read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self, prefix: str, number: int, at_a_time: int) -> dict[str, Any]:
        self.order("run", prefix, number, at_a_time)
        return self.answer()

    def kill(self) -> None:
        """kill -9 of it and of its children. Their children may outlive them by intent."""
        for pid in (*children(self._process.pid), self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        self._process.communicate()


def paced(peer: Peer, folder: Path, seconds: float) -> dict[str, Any]:
    """One round with that many concurrent runs."""
    with Running(peer, folder) as running:
        return {str(at_a_time): _paced(running, at_a_time, seconds) for at_a_time in AT_A_TIME}


def _paced(running: Running, at_a_time: int, seconds: float) -> dict[str, float]:
    warm = running.run(f"warm{at_a_time}", WARM_UP_RUNS, at_a_time)
    number = max(2 * at_a_time, int(WARM_UP_RUNS / warm["seconds"] * seconds))
    told = running.run(f"paced{at_a_time}", number, at_a_time)
    return {"steps_per_s": number * STEPS / told["seconds"], "run_ms": median(told["run_s"]) * 1000}


def syncs(peer: Peer, folder: Path) -> dict[str, float] | None:
    """Syncs per step of all its processes; None without strace."""
    if not (strace := shutil.which("strace")):
        return None
    counted = folder / "syncs"
    tracing = ["-f", "-qq", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-e", "signal=none", "-o"]
    with Running(peer, folder, before=[strace, *tracing, str(counted)]) as running:
        return {str(at_a_time): _syncs(running, counted, at_a_time) for at_a_time in AT_A_TIME}


def _syncs(running: Running, counted: Path, at_a_time: int) -> float:
    running.run(f"warm{at_a_time}", WARM_UP_RUNS, at_a_time)
    before, number = _begun(counted), COUNTED_RUNS[at_a_time]
    running.run(f"counted{at_a_time}", number, at_a_time)
    return round((_begun(counted) - before) / number / STEPS, 2)


def _begun(counted: Path) -> int:
    return sum("sync(" in line for line in counted.read_text().splitlines())


def killed(peer: Peer, folder: Path) -> dict[str, int]:
    """Result for runs in progress at a kill of everything, after a restart."""
    with Running(peer, folder) as running:
        running.order("run", "killed", KILLED_RUNS, KILLED_RUNS)
        until = time.monotonic() + KILLED_WITHIN_S
        while _writes(folder) < KILLED_RUNS * STEPS // 2:
            if time.monotonic() > until:
                raise TimeoutError(f"{peer.name} does not write")
            time.sleep(LOOK_S)
        running.kill()
    with Running(peer, folder) as running:
        running.order("go_on", "killed", KILLED_RUNS)
        told = running.answer()
    return {"runs": KILLED_RUNS, "ended": told["ended"], "writes_made_twice": told["twice"]}


def _writes(folder: Path) -> int:
    file = folder / WRITES
    return len(file.read_text().splitlines()) if file.exists() else 0


def versions() -> dict[str, str]:
    locked = [line for line in (HOME / "requirements-peers.lock").read_text().splitlines() if "==" in line]
    wanted = ("langgraph==", "langgraph-checkpoint-sqlite==", "dbos==", "restate-sdk==")
    found = dict(line.split()[0].split("==") for line in locked if line.startswith(wanted))
    server = json.loads((Path(__file__).parent / "package.json").read_text())["dependencies"]
    return {"agentic-loop-nats": metadata.version("agentic-loop-nats"), **found, **server}


def compare(peers: Sequence[Peer], *, rounds: int, seconds: float) -> dict[str, Any]:
    """All figures, in interleaved rounds, so that disturbances of the machine hit all runtimes."""
    paces: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
    for _ in range(rounds):
        for peer in peers:
            with a_folder() as room:
                paces[peer.name].append(paced(peer, room, seconds))
    told: dict[str, Any] = {}
    for peer in peers:
        with a_folder() as first, a_folder() as second:
            told[peer.name] = {
                "durable": peer.durable,
                "at_a_time": {key: _middle([pace[key] for pace in paces[peer.name]]) for key in paces[peer.name][0]},
                "syncs_per_step": syncs(peer, first),
                "after_kill_9": killed(peer, second) if peer.kills else None,
            }
    return told


def _middle(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: round(median(figure[key] for figure in figures), 1) for key in figures[0]}


@contextmanager
def a_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--rounds", type=int, default=3)
    reading.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    reading.add_argument("--only", nargs="*", default=[peer.name for peer in ALL], help="names of runtimes")
    given = reading.parse_args()
    wanted = [peer for peer in ALL if peer.name in given.only]
    there = [peer for peer in wanted if not peer.missing]
    told = {
        "job": f"{STEPS} steps, each a decision of 0 ms and a tool that writes, both durable",
        "versions": versions(),
        "processors": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 1),
        "left_out": {peer.name: peer.missing for peer in wanted if peer.missing},
        "figures": compare(there, rounds=given.rounds, seconds=given.seconds),
    }
    print(json.dumps(told, indent=2))  # noqa: T201 # its use


if __name__ == "__main__":
    main()
