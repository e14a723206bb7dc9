"""The guard of calls of one plugin, one after another: it runs the plugin, watches it, ends all of it, and notes what
came of it.

What a box costs it pays once, for all of its calls: the view, the paths of landlock, the modules of a Python program.
Per call it forks. It holds the call's lock while anything of the call lives, adopts what the plugin leaves behind,
outlives the gateway, and keeps the deadline without it. On SIGTERM it ends the call as at the deadline: SIGTERM to the
plugin and its group, then SIGKILL. Its notes are files of the call's folder: `began` its own number, `unbegun` why the
program was not run, `stopped` why it ended the plugin, `exit` the exit code as a shell tells it, once nothing of the
call lives. Then it tells the gateway that it is free. It ends with the line to the gateway, and where a call has left
something that it cannot remove.
"""

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import time
from select import PIPE_BUF
from typing import NoReturn

from ductile_gateway.plugins.box.inmate import CANNOT_RUN, Cell, become
from ductile_gateway.plugins.box.order import MB, Order
from ductile_gateway.plugins.box.tree import Tree, end_all_below
from groundwork.service import process

CALL = struct.Struct("!d40s")
"""Seconds until it is told to end, and its name; with the descriptor of its folder, which is its lock."""
FREE = b"."
IDLE_S = 30.0
"""It ends where no call comes for so long."""
FIRST_LOOK_S, NEXT_LOOK_S = 0.2, 0.1
MOST_FILES = 10_000
AT_ONCE = 64 * 1024
BY_A_SIGNAL = 128


def serve(order: Order, line: socket.socket) -> NoReturn:
    """Never returns. `line`: brings calls, one at a time."""
    try:
        _Guard(order, line).run()
        os._exit(0)
    finally:  # without the note of its end the call is in doubt: all that counts is that nothing of it lives
        end_all_below(os.getpid())
        os._exit(1)


class _Guard:
    def __init__(self, order: Order, line: socket.socket) -> None:
        self._order = order
        self._line = line

    def run(self) -> None:
        process.take_in_orphans()
        woken = woken_by_signals()
        cell = Cell(self._order)
        while (call := self._next()) and not cell.flaw:
            seconds, name, folder = call
            _Call(cell, name, folder, seconds, woken).run()
            os.close(folder)
            if not (all(map(_emptied, self._order.own)) and cell.is_as_made()):
                return
            with contextlib.suppress(OSError):  # a gateway that is gone finds the call by its lock
                self._line.send(FREE, getattr(socket, "MSG_NOSIGNAL", 0))
        if call:
            _note(call[2], "began", os.getpid())
            _note(call[2], "unbegun", cell.flaw)
            _note(call[2], "exit", CANNOT_RUN)

    def _next(self) -> tuple[float, str, int] | None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if not select.select([self._line], [], [], IDLE_S)[0]:
            self._line.shutdown(socket.SHUT_RD)  # what has been sent until now still arrives
        try:
            content, folders, *_ = socket.recv_fds(self._line, CALL.size, 1)
        except ConnectionError:
            return None
        if not content:
            return None
        seconds, name = CALL.unpack(content)
        return seconds, name.decode(), folders[0]


class _Call:
    def __init__(self, cell: Cell, name: str, folder: int, seconds: float, woken: int) -> None:
        self._cell = cell
        self._name = name
        self._folder = folder
        self._limits = cell.order.limits
        self._woken = woken
        self._deadline = time.monotonic() + seconds
        self._look_at = time.monotonic() + FIRST_LOOK_S
        self._kill_at = float("inf")
        self._is_told_to_end = False
        self._stopped_for = ""
        self._code: int | None = None

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._hear)
        _note(self._folder, "began", os.getpid())
        self._streams = [_Stream(self._folder, name, self._limits.output_bytes) for name in ("stdout", "stderr")]
        self._tree = Tree(os.getpid())
        self._plugin = self._start()
        while self._code is None:
            self._wait()
            self._copy()
            self._keep_time()
            self._keep_limits()
            self._bury()
        self._end_the_rest()
        self._copy()
        for stream in self._streams:
            stream.close()
        self._note_the_end()

    def _hear(self, *_: object) -> None:
        self._is_told_to_end = True

    def _start(self) -> int:
        guard, (out, err), request = os.getpid(), self._streams, self._request()
        self._said, says = os.pipe()
        plugin = os.fork()
        if plugin == 0:
            become(self._cell, self._name, (request, out.given, err.given), says, guard=guard)
        for descriptor in (request, says, out.given, err.given):
            os.close(descriptor)
        return plugin

    def _request(self) -> int:
        """What stands in the folder, which the plugin must not reach, as a file that it may open again. The first line
        is not for it."""
        with open(os.open("request", os.O_RDONLY, dir_fd=self._folder), "rb") as given:
            begins = len(given.readline())
            if sys.platform != "linux":  # no box is there that hides it
                os.lseek(given.fileno(), begins, os.SEEK_SET)
                return os.dup(given.fileno())
            request = os.memfd_create("request")
            while content := given.read(AT_ONCE):
                os.write(request, content)
        os.lseek(request, 0, os.SEEK_SET)
        return request

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
            self._stop("overdue", grace_s=self._limits.grace_s)
        if now >= self._kill_at:
            end_all_below(os.getpid())
            self._kill_at = now + NEXT_LOOK_S

    def _keep_limits(self) -> None:
        if time.monotonic() >= self._look_at:
            limits, weight, most = self._limits, self._tree.weigh(), self._limits.file_mb * MB
            used = {
                "processes": weight.tasks > limits.processes,
                "memory_mb": weight.memory_bytes > limits.memory_mb * MB,
                "cpu_s": weight.cpu_s > limits.cpu_s,
                "file_mb": sum(_size(folder, most) for folder in self._cell.order.own) > most,
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

    def _bury(self) -> None:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == self._plugin:
                code = os.waitstatus_to_exitcode(ended[1])
                self._code = code if code >= 0 else BY_A_SIGNAL - code  # as a shell tells it
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
            _note(self._folder, "unbegun", unbegun.replace("\n", " "))
        os.close(self._said)
        if self._stopped_for:
            _note(self._folder, "stopped", self._stopped_for)
        _note(self._folder, "exit", self._code)


class _Stream:
    """One of a plugin's outputs: a pipe; a file keeps no more of it than is taken. `source` is read here, `given` is
    the plugin's end."""

    def __init__(self, folder: int, name: str, most: int) -> None:
        self.source, self.given = os.pipe()
        os.set_blocking(self.source, False)
        self._place = name, folder
        self._file = -1
        self._left = most
        self.is_open = True
        self.is_cut = False

    def copy(self) -> None:
        while self.is_open and not self.is_cut and (content := self._read()):
            if self._file < 0:
                self._file = _made(*self._place)
            os.write(self._file, content[: self._left])
            self._left -= len(content)
            self.is_cut = self._left < 0

    def close(self) -> None:
        os.close(self.source)
        if self._file >= 0:
            os.close(self._file)

    def _read(self) -> bytes:
        try:
            content = os.read(self.source, AT_ONCE)
        except BlockingIOError:
            return b""
        self.is_open = bool(content)
        return content


def woken_by_signals() -> int:
    """What a signal makes readable."""
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


def _note(folder: int, name: str, content: object) -> None:
    note = _made(name, folder)
    os.write(note, f"{content}\n".encode())
    os.close(note)


def _made(name: str, folder: int) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
