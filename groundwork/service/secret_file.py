"""A secret that stands in a file: it is changed by writing the file, without a restart of whoever uses it.

Whoever uses it asks for it each time (`get_secret_value`). What is no fit secret is not taken: the one before stays.
"""

import logging
import time
from pathlib import Path

from pydantic import SecretStr

from groundwork.service.secret import SHORTEST_KEY, fault_of

LOOK_EVERY_S = 1.0

log = logging.getLogger(__name__)


class FileSecret(SecretStr):
    """Inherits so that it can stand wherever settings have a secret."""

    def __init__(self, file: Path) -> None:
        """Raises OSError or ValueError for what is no readable text file; its fitness is for the settings to check."""
        self._file = file
        self._version = _version(file)
        self._look_at = time.monotonic() + LOOK_EVERY_S
        super().__init__(_text(file))

    def get_secret_value(self) -> str:
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_EVERY_S
            self._look()
        return self._secret_value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretStr) and self.get_secret_value() == other.get_secret_value()

    def __hash__(self) -> int:
        return hash(self.get_secret_value())

    def _look(self) -> None:
        try:
            version = _version(self._file)
            if version == self._version:
                return
            text, self._version = _text(self._file), version
        except (OSError, ValueError) as error:
            self._stays(f"cannot be read ({type(error).__name__})")
            return
        if fault := fault_of(text, shortest=min(SHORTEST_KEY, len(self._secret_value))):
            self._stays(fault)
        elif text != self._secret_value:
            self._secret_value = text
            log.info("a secret was changed", extra={"file": str(self._file)})

    def _stays(self, fault: str) -> None:
        text = "what is in a secret's file is not taken, and the secret before stays: it %s"
        log.error(text, fault, extra={"file": str(self._file)})


def _version(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip()
