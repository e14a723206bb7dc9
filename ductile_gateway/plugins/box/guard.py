"""The guard of one plugin: runs its calls one after another, watches each, and ends everything that a call starts.

The guard pays the cost of a box once for all of its calls: the view, the paths of landlock, the modules of a Python
program. Per call it forks. It holds the lock of the call's record while anything of the call lives, adopts orphans,
outlives the gateway, and keeps the deadline without it. On SIGTERM it ends the call as at the deadline: SIGTERM to the
plugin and its group, then SIGKILL. After the last entry of the record it tells the gateway that it is free. It ends
when the gateway closes the line, when no call comes for a while, and when a call has left something that it cannot
remove.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time
from typing import NoReturn

from ductile_gateway.plugins.box.boundaries import shared_memory
from ductile_gateway.plugins.box.execution import CANNOT_RUN, PreparedBox, execute
from ductile_gateway.plugins.box.order import CALL, FREE, IDLE_S, MB, Order, append, append_timed
from ductile_gateway.plugins.box.tree import Tree, end_all_below
from groundwork.service import process

FIRST_LOOK_S, NEXT_LOOK_S = 0.2, 0.1
MOST_FILES = 10_000
AT_ONCE = 64 * 1024
BY_A_SIGNAL = 128


def serve(order: Order, line: socket.socket) -> NoReturn:
    """Never returns. `line`: brings calls, one at a time."""
    try:
        _serve(order, line)
        os._exit(0)
    finally:  # without an `exit` the call is in doubt: all that counts is that nothing of it lives
        end_all_below(os.getpid())
        os._exit(1)


def _serve(order: Order, line: socket.socket) -> None:
    process.become_subreaper()
    woken = woken_by_signals()
    box = PreparedBox(order)
    while call := _next_call(line):
        deadline, name, record = call
        if box.flaw:
            append_timed(record, "began", os.getpid())
            _record_unbegun(record, box.flaw)
            return
        if time.monotonic() < deadline:  # else the gateway has given the call up, and said so
            _Call(box, name, record, deadline, woken).run()
        os.close(record)
        if not (all(map(_emptied, order.own)) and box.is_as_made()):
            return
        with contextlib.suppress(OSError):  # a gateway that is gone finds the call by its lock
            line.send(FREE, getattr(socket, "MSG_NOSIGNAL", 0))


def _next_call(line: socket.socket) -> tuple[float, str, int] | None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not select.select([line], [], [], IDLE_S)[0]:
        line.shutdown(socket.SHUT_RD)  # what has been sent until now still arrives
    try:
        content, records, *_ = socket.recv_fds(line, CALL.size, 1)
    except ConnectionError:
        return None
    if not content:
        return None
    deadline, name = CALL.unpack(content)
    os.set_inheritable(records[0], False)
    return deadline, name.decode(), records[0]


class _Call:
    def __init__(self, box: PreparedBox, name: str, record: int, deadline: float, woken: int) -> None:
        self._box = box
        self._name = name
        self._record = record
        self._limits = box.order.limits
        self._woken = woken
        self._deadline = deadline
        self._look_at = time.monotonic() + FIRST_LOOK_S
        self._kill_at = float("inf")
        self._is_told_to_end = False
        self._stopped_for = ""
        self._code: int | None = None

    def run(self) -> None:
        """Raises OSError where nothing could be started, and records that."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        append_timed(self._record, "began", os.getpid())
        self._tree = Tree(os.getpid(), self._box.order.place)
        self._poller = select.poll()
        self._poller.register(self._woken, select.POLLIN)
        try:
            self._plugin = self._start()
        except OSError as error:
            _record_unbegun(self._record, f"{self._box.order.entrypoint}: {error}")
            raise
        while self._code is None:
            self._copy(self._wait())
            self._keep_time()
            self._keep_limits()
            self._reap()
        self._end_the_rest()
        self._copy({output.source for output in self._outputs})
        for output in self._outputs:
            os.close(output.source)
        self._record_end()

    def _on_sigterm(self, *_: object) -> None:
        self._is_told_to_end = True

    def _start(self) -> int:
        self._outputs = [_Output(self._record, name, self._limits.output_bytes) for name in ("stdout", "stderr")]
        for output in self._outputs:
            self._poller.register(output.source, select.POLLIN)
        guard, (out, err), request = os.getpid(), self._outputs, self._request()
        self._given = os.fstat(request).st_blocks * 512
        plugin = os.fork()
        if plugin == 0:
            execute(self._box, self._name, (request, out.given, err.given), self._record, guard=guard)
        for descriptor in (request, out.given, err.given):
            os.close(descriptor)
        return plugin

    def _request(self) -> int:
        """The request, as a file of its own that the plugin may open again: it must not reach the record."""
        if sys.platform == "linux":
            request = os.memfd_create("request")
        else:
            path = f"{self._box.order.place}/request"
            request = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            os.unlink(path)
        content = os.pread(self._record, AT_ONCE, 0)
        begins = at = content.index(b"\n") + 1
        end = begins + int(content[:begins].split()[1])
        content = content[begins:end]
        while at < end:
            at += os.pwrite(request, content, at - begins)
            content = os.pread(self._record, min(AT_ONCE, end - at), at)
        return request

    def _wait(self) -> set[int]:
        next_at = min(self._look_at, self._kill_at if self._stopped_for else self._deadline)
        ready = {source for source, _ in self._poller.poll(max(0.0, next_at - time.monotonic()) * 1000)}
        if self._woken in ready:
            os.read(self._woken, 4096)
        return ready

    def _copy(self, ready: set[int]) -> None:
        for output in self._outputs:
            if output.is_open and output.source in ready:
                output.copy()
                if not output.is_open:
                    self._poller.unregister(output.source)
            if output.is_cut:
                self._stop("output", grace_s=0)

    def _keep_time(self) -> None:
        now = time.monotonic()
        if self._is_told_to_end or now >= self._deadline:
            self._stop("overdue", grace_s=self._limits.grace_s)
        if now >= self._kill_at:
            end_all_below(os.getpid())
            self._kill_at = now + NEXT_LOOK_S

    def _keep_limits(self) -> None:
        if time.monotonic() >= self._look_at:
            limits, usage, most = self._limits, self._tree.measure(), self._limits.file_mb * MB
            nameless, shared = usage.nameless_bytes - self._given, shared_memory() if self._box.order.view else 0
            used = {
                "processes": usage.tasks > limits.processes,
                "memory_mb": usage.memory_bytes + shared > limits.memory_mb * MB,
                "cpu_s": usage.cpu_s > limits.cpu_s,
                "file_mb": sum(_size(folder, most) for folder in self._box.order.own) + nameless > most,
            }
            if exceeded := next((name for name, is_exceeded in used.items() if is_exceeded), ""):
                self._stop(exceeded, grace_s=0)
                end_all_below(os.getpid())
            self._look_at = time.monotonic() + NEXT_LOOK_S

    def _stop(self, reason: str, *, grace_s: float) -> None:
        if not self._stopped_for:
            self._stopped_for = reason
            self._kill_at = time.monotonic() + grace_s
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._plugin, signal.SIGTERM)

    def _reap(self) -> None:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == self._plugin:
                code = os.waitstatus_to_exitcode(ended[1])
                self._code = code if code >= 0 else BY_A_SIGNAL - code  # as a shell reports it
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

    def _record_end(self) -> None:
        if self._code == BY_A_SIGNAL + signal.SIGXCPU:
            self._stopped_for = self._stopped_for or "cpu_s"
        if self._stopped_for:
            append(self._record, "stopped", self._stopped_for.encode())
        append_timed(self._record, "exit", self._code or 0)


def _record_unbegun(record: int, flaw: str) -> None:
    append(record, "unbegun", flaw.encode(errors="replace"))
    append_timed(record, "exit", CANNOT_RUN)


class _Output:
    """One of a plugin's outputs: a pipe; the record keeps as much of it as the limit allows. `source` is the guard's
    end, `given` the plugin's."""

    def __init__(self, record: int, name: str, most: int) -> None:
        self.source, self.given = os.pipe()
        os.set_blocking(self.source, False)
        self._record = record
        self._name = name
        self._left = most
        self.is_open = True
        self.is_cut = False

    def copy(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.is_open:
                content = os.read(self.source, AT_ONCE)
                if content:
                    append(self._record, self._name, content[: self._left])
                self._left -= len(content)
                self.is_cut = self._left < 0
                self.is_open = bool(content) and not self.is_cut


def woken_by_signals() -> int:
    """A descriptor that a signal makes readable."""
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    return woken


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


def _emptied(folder: str) -> bool:
    try:
        if os.stat(folder).st_mode & 0o777 != 0o700:
            os.chmod(folder, 0o700)
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                elif _emptied(entry.path):
                    os.rmdir(entry.path)
    except (OSError, RecursionError):
        return False
    return True
