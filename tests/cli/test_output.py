"""Files as they are printed: into a file byte for byte, on a terminal as text that steers nothing."""

import io
from contextlib import redirect_stdout

import pytest

from agent_service.cli import output
from agent_service.cli.errors import Exit, NotDone

PICTURE = b"\x89PNG\r\n\x1a\n\x00\xff"


class Screen(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def printed(content: bytes, kind: type[io.TextIOWrapper]) -> bytes:
    into = io.BytesIO()
    with redirect_stdout(kind(into, encoding="utf-8")):
        output.content(content, "artifacts/a")
        return into.getvalue()


@pytest.mark.parametrize("content", [PICTURE, b"", b"\x1b[31mred\n", b"no line end"])
def test_a_file_is_printed_byte_for_byte_where_no_terminal_reads(content: bytes) -> None:
    assert printed(content, io.TextIOWrapper) == content


def test_a_text_steers_no_terminal() -> None:
    assert printed(b"a \x1b]0;owned\x07\nb\n", Screen) == "a ␛]0;owned␇\nb\n".encode()


def test_what_is_no_text_is_not_printed_on_a_terminal() -> None:
    with pytest.raises(NotDone, match="print it into a file") as refused:
        printed(PICTURE, Screen)
    assert refused.value.exit_code == Exit.USAGE
