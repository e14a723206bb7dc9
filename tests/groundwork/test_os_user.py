"""Who is at the other end of a connection within this machine: told by the kernel, of real sockets."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from groundwork.http.os_user import os_user
from groundwork.service.process import user_name

ME = user_name(os.getuid())


@contextmanager
def connected(host: str) -> Iterator[tuple[socket.socket, dict[str, tuple[str, int]]]]:
    """A caller's socket, and the scope of its request as the service sees it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as service:
        caller = socket.create_connection((host, service.getsockname()[1]))
        accepted, peer = service.accept()
        with closing(caller), closing(accepted):
            yield caller, {"client": peer[:2], "server": accepted.getsockname()[:2]}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "::1"])
def test_a_caller_on_this_machine_is_its_user(host: str) -> None:
    with connected(host) as (_, scope):
        assert os_user(scope) == ME


def test_a_caller_that_has_gone_is_nobody_and_not_user_0() -> None:
    with connected("127.0.0.1") as (caller, scope):
        caller.close()
        assert os_user(scope) == ""


def test_who_listens_where_the_caller_was_is_not_the_caller() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, connected("127.0.0.1") as (_, scope):
        assert os_user(scope | {"client": other.getsockname()}) == ""
