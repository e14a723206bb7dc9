"""The stream of events: a ring of 256, ids from 1 on in every life, readers that are too slow lose events."""

import contextlib
import json
import queue
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

RING = 256
BUFFERED_PER_READER = 128
KEEP_ALIVE_SECONDS = 15.0


class Hub:
    """One life of the stream; a restart makes a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ring: deque[tuple[int, bytes]] = deque(maxlen=RING)
        self._readers: list[queue.Queue[bytes | None]] = []
        self._last_id = 0

    def publish(self, kind: str, data: dict[str, Any]) -> None:
        """Give an event to the ring and to every reader that keeps up."""
        with self._lock:
            self._last_id += 1
            frame = f"id: {self._last_id}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()
            self._ring.append((self._last_id, frame))
            for reader in self._readers:
                with contextlib.suppress(queue.Full):
                    reader.put_nowait(frame)

    def follow(self, last_id: int) -> Iterator[bytes]:
        """The frames after `last_id` that the ring holds (0: all), then those to come, until the stream is cut."""
        reader: queue.Queue[bytes | None] = queue.Queue(BUFFERED_PER_READER)
        with self._lock:
            old = [frame for number, frame in self._ring if number > last_id]
            self._readers.append(reader)
        try:
            yield b"".join(old)
            yield from _frames(reader)
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._readers.remove(reader)

    def cut(self) -> None:
        """End every open stream."""
        with self._lock:
            for reader in self._readers:
                with contextlib.suppress(queue.Empty):
                    while True:
                        reader.get_nowait()
                reader.put_nowait(None)
            self._readers.clear()


def _frames(reader: "queue.Queue[bytes | None]") -> Iterator[bytes]:
    while True:
        try:
            frame = reader.get(timeout=KEEP_ALIVE_SECONDS)
        except queue.Empty:
            frame = b": keep-alive\n\n"
        if frame is None:
            return
        yield frame
