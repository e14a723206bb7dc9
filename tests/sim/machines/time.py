"""Virtual time, and processes in it: event loops that a kill ends between two instructions.

The scheduler runs one process at a time, drawn from the seed; within a process callbacks keep their order, as in any
event loop. If no process can go on, time advances to the next timer.
"""

import asyncio
import contextlib
import contextvars
import gc
import heapq
import itertools
import random
import sys
import warnings
from asyncio import base_events, events
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar, TypeVarTuple

import nats.aio.client as nats_client
import nats.js.client as js_client
from anyio._backends._asyncio import AsyncIOBackend, _task_states
from fastapi.dependencies import models as fastapi_models
from httpcore2._async import http11

from groundwork.service.machine import Machine, use

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""Wall clock at virtual second 0."""


LEFT_OVER = 100
"""Garbage objects that trigger a collection."""
THREADS = "run_sync_in_worker_thread"
"""anyio's function for blocking work, which FastAPI uses for dependencies of handlers."""
_in_a_thread = getattr(AsyncIOBackend, THREADS)


async def _at_once_in_a_process(func: Callable[..., T], args: tuple[Any, ...] = (), **more: Any) -> T:
    done: T = func(*args) if isinstance(events.get_running_loop(), Process) else await _in_a_thread(func, args, **more)
    return done


setattr(AsyncIOBackend, THREADS, _at_once_in_a_process)
for _library in (http11, nats_client, js_client):
    # They measure time by themselves: the time of the event loop they are in, which is the machine's in a real one.
    _library.time = SimpleNamespace(monotonic=lambda: events.get_running_loop().time())  # type: ignore[attr-defined]


class Killed(BaseException):
    """Ends a process. No handler may catch it and go on."""


class Stuck(AssertionError):
    """Nothing can go on, or it goes on for ever."""


class Wires(Protocol):
    def connect(self, process: "Process", host: str, port: int, protocol: asyncio.Protocol) -> asyncio.Transport: ...


class Scheduler:
    """Time, processes and events, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - the same seed gives the same schedule
        self.now = 0.0
        self.skew = 0.0
        """Seconds by which the wall clock is ahead."""
        self.faults: dict[str, float] = {}
        """Probabilities, by the names in `random_world.FAULTS`."""
        self.processes: list[Process] = []
        self.ended: list[Process] = []
        """Processes that ended by themselves, until the supervisor restarts them."""
        self.machine = Machine(
            wall=self.wall, monotonic=lambda: self.now, uptime=lambda: self.now, entropy=self.random.randbytes
        )
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def wall(self) -> datetime:
        return NOON + timedelta(seconds=self.now + self.skew)

    def at(self, when: float, work: Callable[[], None]) -> None:
        """Runs `work` outside all processes at virtual second `when`."""
        heapq.heappush(self._timers, (when, next(self._numbers), work))

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        self.at(self.now + seconds, work)

    def chance(self, fault: str) -> bool:
        return fault in self.faults and self.random.random() < self.faults[fault]

    def run_until(self, over: Callable[[], bool], *, within_s: float) -> bool:
        until = self.now + within_s
        while not over():
            if not self._step(until):
                return False
        return True

    def _step(self, until: float) -> bool:
        ready = [process for process in self.processes if process.ready]
        if ready:
            process = ready[0] if len(ready) == 1 else self.random.choice(ready)
            process.turn()
            return True
        return self._pass_time(until)

    def _pass_time(self, until: float) -> bool:
        due = [process.next_timer for process in self.processes]
        if self._timers:
            due.append(self._timers[0][0])
        when = min(due, default=float("inf"))
        if when > until:
            self.now = max(self.now, until)
            return False
        self.now = max(self.now, when)
        while self._timers and self._timers[0][0] <= self.now:
            heapq.heappop(self._timers)[2]()
        for process in self.processes:
            process.wake()
        return True


class Process(asyncio.BaseEventLoop):
    """Event loop of one life of a service."""

    def __init__(self, name: str, scheduler: Scheduler, wires: Wires) -> None:
        super().__init__()
        self.name = name
        self.ready = self._ready  # type: ignore[attr-defined]
        """Callbacks to run next."""
        self.alive = True
        self.why: BaseException | None = None
        """Exception with which the process ended by itself."""
        self.doors: dict[str, Callable[[], asyncio.Protocol]] = {}
        """Protocol factory for each listening address."""
        self._scheduler = scheduler
        self._wires = wires
        self._context = contextvars.Context()
        self._context.run(use, scheduler.machine)
        self.tasks: list[asyncio.Task[Any]] = []
        self.set_exception_handler(lambda *_: None)
        self.set_task_factory(self._make_task)
        scheduler.processes.append(self)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.create_task(work, context=self._context).add_done_callback(self._end, context=self._context)

    def kill(self) -> None:
        """Nothing of it runs any more, and nothing it does has an effect."""
        self.alive = False
        self.ready.clear()
        self._scheduled.clear()  # type: ignore[attr-defined]
        if self in self._scheduler.processes:
            self._scheduler.processes.remove(self)

    def happens(self, what: Callable[..., object], *args: Any) -> None:
        self.call_soon(what, *args, context=self._context)

    def opened(self, door: str) -> asyncio.Protocol:
        events._set_running_loop(self)
        try:
            return self.doors[door]()
        finally:
            events._set_running_loop(None)

    def end(self) -> None:
        self.kill()
        self.tasks.clear()

    def __del__(self) -> None:
        """Skips the base class, which would close what is not open."""

    # what the scheduler asks

    @property
    def next_timer(self) -> float:
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
            heapq.heappop(scheduled)._scheduled = False
        return float(scheduled[0]._when) if scheduled else float("inf")

    def wake(self) -> None:
        scheduled, ready = self._scheduled, self.ready  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._when <= self._scheduler.now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)

    def turn(self) -> None:
        ready = self.ready
        before = events._get_running_loop()
        events._set_running_loop(self)
        self._thread_id = 1
        try:
            for _ in range(len(ready)):
                if not ready:
                    break
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        except Killed:
            self.kill()
        finally:
            self._thread_id = None  # type: ignore[assignment]
            events._set_running_loop(before)

    # what the program asks of its event loop

    def time(self) -> float:
        return self._scheduler.now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        if self.alive:
            self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Runs at once: a thread would make the schedule depend on more than the seed."""
        del executor
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)
        return done

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        return [(2, 1, 6, "", (host.decode() if isinstance(host, bytes) else host, port))]

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        protocol = protocol_factory()
        transport = self._wires.connect(self, host, port, protocol)
        await asyncio.sleep(0)
        return transport, protocol

    async def create_server(self, protocol_factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:
        self.doors[sock.getsockname()[0]] = protocol_factory
        return base_events.Server(self, [], protocol_factory, None, 0, None)

    def add_signal_handler(self, *_: Any) -> None:  # type: ignore[override]
        """Processes here are killed, never asked to stop."""

    def remove_signal_handler(self, *_: Any) -> bool:
        return False

    def _make_task(self, loop: Any, coroutine: Any, **kwargs: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **kwargs)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.tasks.append(task)
        if len(self.tasks) > 500:
            self.tasks = [task for task in self.tasks if not task.done()]
        return task

    def _end(self, task: asyncio.Task[None]) -> None:
        self.why = None if task.cancelled() else task.exception()
        self._scheduler.ended.append(self)
        self.kill()


class ClosingLoop(asyncio.BaseEventLoop):
    """Loop for coroutines that are being closed: nothing that they start happens."""

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        return asyncio.Handle(callback, args, self, context)

    def __del__(self) -> None:
        """Skips the base class, which would close what is not open."""


@contextlib.contextmanager
def discarding(processes: list[Process]) -> Iterator[None]:
    """Deletes dead processes without warnings about what they left."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    events._set_running_loop(ClosingLoop())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while processes:
                processes.pop().end()
            yield
            _task_states.clear()  # anyio's: the scopes of tasks that never end would hold them for ever
            for known in vars(fastapi_models).values():  # the handlers of each app that there was
                getattr(known, "cache_clear", lambda: None)()
            while gc.collect() > LEFT_OVER:  # what is closed leaves something behind itself
                pass
    finally:
        events._set_running_loop(None)
        sys.unraisablehook = hook
