"""Processes that only the test starts, kills, stops and restarts."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from groundwork.service.process import ending_with_us
from tests.kit.waiting import until

ENDS_WITHIN_S = 30.0


class Process:
    """Ends with the thread that started it, also if that is killed. Its output is in `log`."""

    def __init__(self, command: tuple[str, ...], log: Path) -> None:
        self.log = log
        self.code: Path | None = None
        """Checkout whose modules it runs from its next start on; None for this one."""
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def awake(self) -> bool:
        return self.pid is not None and not self._stopped

    def start(self) -> None:
        """Returns before it is ready."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            command = ending_with_us(list(self._command))
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True, cwd=self.code
            )
        self._stopped = False

    def kill(self) -> None:
        """SIGKILL, without its children."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        self._stopped = False

    async def end(self) -> None:
        """SIGTERM; waits for its end."""
        self.go_on()
        self._signal(signal.SIGTERM)
        await self.ended()

    async def ended(self) -> int:
        """Waits until it ends by itself and returns its exit code."""
        await until(lambda: self.pid is None, within_s=ENDS_WITHIN_S, otherwise=lambda: f"{self.log} has not ended")
        return self._process.returncode if self._process is not None else 0

    def stop(self) -> None:
        """SIGSTOP: it keeps its connections silently until `go_on`."""
        self._signal(signal.SIGSTOP)
        self._stopped = True

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)
        self._stopped = False

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, number)


class Service(Process):
    """An agent (of the package `agent_service`) or a gateway (`ductile_gateway`)."""

    def __init__(self, package: str, config: Path, log: Path, *options: str) -> None:
        self.config = config
        super().__init__((sys.executable, "-m", package, "serve", "--config", str(config), *options), log)
