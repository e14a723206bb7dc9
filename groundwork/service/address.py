"""Addresses as they may be shown, decided in one place: a login in one (`user:password@`, `token@`) is cut."""

from ipaddress import ip_address
from urllib.parse import unquote, urlsplit


def without_login(url: str) -> str:
    scheme, rest = _split(url)
    return scheme + rest.rpartition("@")[2]


def login_in(url: str) -> str | None:
    """The password or token in the address, as it is written there; None for an address without a login."""
    login, at, _ = _split(url)[1].rpartition("@")
    return (login.partition(":")[2] if ":" in login else login) if at else None


def secrets_in(url: str) -> tuple[str, ...]:
    """What no log may show of the address: as it is written, and as the server is told."""
    login = login_in(url)
    return tuple(dict.fromkeys((login, unquote(login)))) if login else ()


def keeps_secrets(url: str) -> bool:
    """True where what is sent cannot be read on the way: by TLS, or because it does not leave this machine."""
    address = urlsplit(url)
    return address.scheme != "http" or is_loopback(address.hostname or "")


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def called(host: str) -> str:
    """What to call, in an address, where somebody listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 # compared with, not listened on
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _split(url: str) -> tuple[str, str]:
    scheme, mark, rest = url.partition("://")
    return (scheme + mark, rest) if mark else ("", url)
