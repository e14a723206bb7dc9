"""The guard of one call: a process that runs the plugin, watches it, ends all of it, and notes what came of it.

It holds the call's lock while anything of the call lives, adopts what the plugin leaves behind, outlives the gateway,
and keeps the deadline without it. On SIGTERM it ends the call as at the deadline: SIGTERM to the plugin and its group,
then SIGKILL. Its notes are files of the call's folder: `began` its own number, `unbegun` why the program was not run,
`stopped` why it ended the plugin, `exit` the exit code as a shell tells it, once nothing of the call lives.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Mapping
from select import PIPE_BUF
from typing import NoReturn

from ductile_gateway.plugins.box.inmate import become
from ductile_gateway.plugins.box.limits import MB, Limits
from ductile_gateway.plugins.box.order import Order, Stream
from ductile_gateway.plugins.box.tree import Tree, Weight, end_all_below
from groundwork.service import process

FIRST_LOOK_S, NEXT_LOOK_S = 0.2, 0.1
MOST_FILES = 10_000
BY_A_SIGNAL = 128


def keep(order: Order, tasks: int) -> NoReturn:
    """Never returns. The call's lock is a descriptor that stays open. `tasks`: how many the plugin's user has."""
    try:
        _Guard(order, tasks).run()
        os._exit(0)
    finally:  # without the note of its end the call is in doubt: all that counts is that nothing of it lives
        end_all_below(os.getpid())
        os._exit(1)


class _Guard:
    def __init__(self, order: Order, tasks: int) -> None:
        self._order = order
        self._tasks = tasks
        self._deadline = time.monotonic() + order.seconds
        self._look_at = time.monotonic() + FIRST_LOOK_S
        self._kill_at = float("inf")
        self._is_told_to_end = False
        self._stopped_for = ""
        self._code: int | None = None

    def run(self) -> None:
        process.hide_memory()
        process.take_in_orphans()
        self._woken = self._listen()
        _note(f"{self._order.folder}/began", os.getpid())
        most = self._order.limits.output_bytes
        self._streams = [Stream(f"{self._order.folder}/{name}", most) for name in ("stdout", "stderr")]
        self._plugin = self._start()
        self._tree = Tree(os.getpid())
        while self._code is None:
            self._wait()
            self._copy()
            self._keep_time()
            self._keep_limits()
            self._bury()
        self._end_the_rest()
        self._copy()
        self._note_the_end()

    def _listen(self) -> int:
        woken, wakes = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wakes, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._hear)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        return woken

    def _hear(self, *_: object) -> None:
        self._is_told_to_end = True

    def _start(self) -> int:
        guard, (out, err) = os.getpid(), self._streams
        self._said, says = os.pipe()
        with open(f"{self._order.folder}/request", "rb") as request:
            plugin = os.fork()
            if plugin == 0:
                streams = (request.fileno(), out.given, err.given)
                become(self._order, streams, says, guard=guard, tasks=self._tasks)
        os.close(says)
        for stream in self._streams:
            os.close(stream.given)
        return plugin

    def _wait(self) -> None:
        poller = select.poll()
        for source in (self._woken, *(stream.source for stream in self._streams if stream.is_open)):
            poller.register(source, select.POLLIN)
        next_at = min(self._look_at, self._kill_at if self._stopped_for else self._deadline)
        poller.poll(max(0.0, next_at - time.monotonic()) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def _copy(self) -> None:
        for stream in self._streams:
            stream.copy()
        if any(stream.is_cut for stream in self._streams):
            self._stop("output", grace_s=0)

    def _keep_time(self) -> None:
        now = time.monotonic()
        if self._is_told_to_end or now >= self._deadline:
            self._stop("overdue", grace_s=self._order.limits.grace_s)
        if now >= self._kill_at:
            end_all_below(os.getpid())
            self._kill_at = now + NEXT_LOOK_S

    def _keep_limits(self) -> None:
        if time.monotonic() >= self._look_at:
            if exceeded := _exceeded(self._order.limits, self._tree.weigh()) or self._overfull():
                self._stop(exceeded, grace_s=0)
                end_all_below(os.getpid())
            self._look_at = time.monotonic() + NEXT_LOOK_S

    def _overfull(self) -> str:
        most = self._order.limits.file_mb * MB
        return "file_mb" if sum(_size(f"{self._order.place}/{name}", most) for name in ("work", "tmp")) > most else ""

    def _stop(self, reason: str, *, grace_s: float) -> None:
        if not self._stopped_for:
            self._stopped_for = reason
            self._kill_at = time.monotonic() + grace_s
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._plugin, signal.SIGTERM)

    def _bury(self) -> None:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == self._plugin:
                self._code = _as_a_shell_tells(ended[1])
                return

    def _end_the_rest(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._plugin, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
                end_all_below(os.getpid())
                time.sleep(0.001)

    def _note_the_end(self) -> None:
        if self._code == BY_A_SIGNAL + signal.SIGXCPU:
            self._stopped_for = self._stopped_for or "cpu_s"
        if unbegun := os.read(self._said, PIPE_BUF).decode():
            _note(f"{self._order.folder}/unbegun", unbegun.replace("\n", " "))
        if self._stopped_for:
            _note(f"{self._order.folder}/stopped", self._stopped_for)
        _note(f"{self._order.folder}/exit", self._code)
        if self._order.place != self._order.folder:
            import shutil  # costs every fork a millisecond, and is seldom needed

            shutil.rmtree(self._order.place, ignore_errors=True)


def _exceeded(limits: Limits, weight: Weight) -> str:
    used: Mapping[str, bool] = {
        "processes": weight.tasks > limits.processes,
        "memory_mb": weight.memory_bytes > limits.memory_mb * MB,
        "cpu_s": weight.cpu_s > limits.cpu_s,
    }
    return next((name for name, is_exceeded in used.items() if is_exceeded), "")


def _size(folder: str, most: int) -> int:
    size, seen, folders = 0, 0, [folder]
    while folders and size <= most:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                size += entry.stat(follow_symlinks=False).st_blocks * 512
                seen += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
        if seen > MOST_FILES:
            return most + 1
    return size


def _as_a_shell_tells(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else BY_A_SIGNAL - code


def _note(path: str, content: object) -> None:
    with open(path, "xb") as file:
        file.write(f"{content}\n".encode())
