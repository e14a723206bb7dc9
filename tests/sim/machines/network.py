"""Connections between processes and servers of the world. Bytes arrive late and in order; a connection can be cut.

Each write of a process is an effect: the process may be killed before it (see `Boundary`).
"""

import asyncio
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from tests.sim.machines.boundary import Boundary, effects_of
from tests.sim.machines.time import Process

BUS, CALLER = "bus", "caller"
FAST, SLOW = 0.0002, 0.003
"""Seconds of a transfer."""


class Peer(Protocol):
    def received(self, data: bytes) -> None: ...

    def closed(self) -> None: ...


class Server(Protocol):
    up: bool

    def accept(self, connection: "Connection") -> Peer: ...


SILENT, _ = os.pipe()


class NoSocket:
    family = socket.AF_INET

    def setsockopt(self, *_: object) -> None: ...

    def fileno(self) -> int:
        """Descriptor of a pipe that stays empty: clients poll idle connections for data."""
        return SILENT

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 2


class Connection(asyncio.Transport):
    """Transport of a process; a server sends through it too."""

    def __init__(self, process: Process, boundary: Boundary, protocol: asyncio.Protocol, host: str) -> None:
        super().__init__({"socket": NoSocket(), "peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.process = process
        self.host = host
        self.peer: Peer | None = None
        self.is_open = True
        self._scheduler = boundary.scheduler
        self._boundary = boundary
        self._protocol = protocol
        self._arrives_there = self._arrives_here = 0.0
        process.happens(protocol.connection_made, self)

    # the process's end

    def write(self, data: Any) -> None:
        if not self.is_open or not self.process.alive:
            return
        self._boundary.passes(self.process, effects_of(self.host, bytes(data)))
        self._arrives_there = when = self._arrival(self._arrives_there)
        sent = [bytes(data)] if self.host == BUS else self._boundary.asks(self.process.name, bytes(data))
        for each in sent:
            self._scheduler.at(when, partial(self._there, each))

    def is_closing(self) -> bool:
        return not self.is_open

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._scheduler.at(self._arrival(self._arrives_there), self._tell_peer)
            self._lost(None)

    def abort(self) -> None:
        self.close()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    # the server's end

    def send(self, data: bytes) -> None:
        if self.is_open:
            self._arrives_here = when = self._arrival(self._arrives_here)
            self._scheduler.at(when, lambda: self._here(data))

    def cut(self) -> None:
        """Drops the bytes in transfer in both directions."""
        if self.is_open:
            self.is_open = False
            self._tell_peer()
            self._lost(ConnectionResetError("cut"))

    def _arrival(self, after: float) -> float:
        late = self._scheduler.now + self._scheduler.random.uniform(FAST, SLOW)
        return max(after, late)

    def _there(self, data: bytes) -> None:
        """Delivers bytes even after the death of the process that sent them."""
        if self.peer and (self.is_open or not self.process.alive):
            self.peer.received(data)

    def _here(self, data: bytes) -> None:
        if self.is_open and self.process.alive:
            seen = data if self.host == BUS else self._boundary.receives(self.process.name, data)
            if seen is None:
                self.cut()
            else:
                self.process.happens(self._hand_over, seen)

    def _hand_over(self, data: bytes) -> None:
        if self.is_open:
            self._protocol.data_received(data)

    def _tell_peer(self) -> None:
        if self.peer:
            self.peer.closed()
            self.peer = None

    def _lost(self, error: Exception | None) -> None:
        if self.process.alive:
            self.process.happens(self._protocol.connection_lost, error)


class Network:
    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._servers: dict[str, Server] = {}
        self.connections: list[Connection] = []

    def serve(self, host: str, server: Server) -> None:
        self._servers[host] = server

    def connect(self, process: Process, host: str, port: int, protocol: asyncio.Protocol) -> asyncio.Transport:
        del port
        server = self._servers.get(host)
        if server is None or not server.up:
            raise ConnectionRefusedError(f"nothing listens at {host}")
        connection = self._between(process, protocol, host)
        connection.peer = server.accept(connection)
        return connection

    def call(self, process: Process, door: str, peer: Peer) -> Connection:
        connection = self._between(process, process.opened(door), CALLER)
        connection.peer = peer
        return connection

    def _between(self, process: Process, protocol: asyncio.Protocol, host: str) -> Connection:
        connection = Connection(process, self._boundary, protocol, host)
        self.connections = [one for one in self.connections if one.is_open] + [connection]
        return connection

    def cut(self, which: Callable[[Connection], bool]) -> None:
        for connection in self.connections:
            if which(connection):
                connection.cut()

    def forget(self, process: Process) -> None:
        """Closes a dead process's connections once its sent bytes have arrived, as a kernel does."""
        for connection in self.connections:
            if connection.process is process and connection.is_open:
                connection.is_open = False
                self._boundary.scheduler.after(SLOW * 2, connection._tell_peer)
