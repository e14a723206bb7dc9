"""One of a plugin's outputs: a pipe, of which no more is kept in a file than is taken."""

import os

AT_ONCE = 64 * 1024


class Stream:
    """`source` is read here, `given` is the plugin's end."""

    def __init__(self, path: str, most: int) -> None:
        self.source, self.given = os.pipe()
        os.set_blocking(self.source, False)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._left = most
        self.is_open = True
        """Whether more may come."""
        self.is_cut = False
        """Whether there was more than is taken."""

    def copy(self) -> None:
        while self.is_open and not self.is_cut and (content := self._read()):
            os.write(self._file, content[: self._left])
            self._left -= len(content)
            self.is_cut = self._left < 0

    def _read(self) -> bytes:
        try:
            content = os.read(self.source, AT_ONCE)
        except BlockingIOError:
            return b""
        self.is_open = bool(content)
        return content
