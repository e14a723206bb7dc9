"""The record of a call: named contents, one after another, each as `NAME LENGTH`, a newline, the content and a newline.

A guard appends; what a crash cuts short does not count. Contents: `request`, `began` (the guard's process id and the
time), `stdout` and `stderr` (in pieces), `unbegun` (the reason why the program was not run), `stopped` (the reason why
it was ended) and `exit` (its exit code, as a shell reports it, and the time). Times are seconds since 1970.
"""

import os
import time


def append(record: int, name: str, content: bytes) -> None:
    """Raises OSError, also where only a part could be written."""
    entry = b"%s %d\n%s\n" % (name.encode(), len(content), content)
    if os.write(record, entry) < len(entry):
        raise OSError(f"the {name} of a call could not be written in full: the disk is full")


def append_timed(record: int, name: str, number: int) -> None:
    append(record, name, b"%d %f" % (number, time.time()))


def contents(record: bytes) -> dict[str, bytes]:
    """Contents by name, with the pieces joined, up to the first entry that is not whole."""
    pieces: dict[str, list[bytes]] = {}
    at = 0
    while (header := record.find(b"\n", at, at + 32)) >= 0:
        name, _, length = record[at:header].partition(b" ")
        end = header + 1 + int(length) if length.isdigit() else len(record)
        if record[end : end + 1] != b"\n":
            break
        pieces.setdefault(name.decode(errors="replace"), []).append(record[header + 1 : end])
        at = end + 1
    return {name: b"".join(found) for name, found in pieces.items()}
