"""Where the bus is and how we prove who we are, turned into options of the NATS client. Secrets are never shown."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groundwork.service.address import without_login
from groundwork.service.errors import Misconfigured


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NatsSettings:
    """The servers (`nats://host:port`, any of one cluster) and one way to log in.

    A file is named, never its content: `creds_file` (JWT and seed), `nkey_seed_file`; or `user` and `password`; or
    `token`. `tls_first` starts TLS before a word is said: without it a server that does not ask for TLS is talked to
    in the clear, whatever `tls_ca` says. `inbox_prefix` is the subject under which answers may be received.
    """

    urls: tuple[str, ...]
    creds_file: Path | None = None
    nkey_seed_file: Path | None = None
    user: str | None = None
    password: str | None = None
    token: str | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_first: bool = False
    name: str = "agentic-loop"
    inbox_prefix: str = "_INBOX"

    def __repr__(self) -> str:
        return f"NatsSettings({self.servers}, name={self.name!r})"

    @property
    def servers(self) -> str:
        """The addresses for people: without user, password and token."""
        return ", ".join(without_login(url if "://" in url else f"nats://{url}") for url in self.urls)


def client_options(settings: NatsSettings) -> dict[str, Any]:
    """Options for `nats.aio.client.Client.connect`. Raises Misconfigured when a file cannot be used."""
    options: dict[str, Any] = {
        "servers": list(settings.urls),
        "name": settings.name,
        "inbox_prefix": settings.inbox_prefix,
        "user": settings.user,
        "password": settings.password,
        "token": settings.token,
        "user_credentials": _readable(settings.creds_file, "credentials"),
        "nkeys_seed": _readable(settings.nkey_seed_file, "nkey seed"),
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 0.25,
        "ping_interval": 10,
        "max_outstanding_pings": 2,
        # No buffer while disconnected: what could not be sent is known not to be sent.
        "pending_size": 0,
    }
    if settings.tls_ca or settings.tls_cert or settings.tls_first:
        options |= {"tls": _tls_context(settings), "tls_handshake_first": settings.tls_first}
    return options


def _readable(path: Path | None, what: str) -> str | None:
    if path is None:
        return None
    try:
        with path.open("rb"):
            return str(path)
    except OSError as error:
        raise Misconfigured(f"the NATS {what} file {path} cannot be read: {error.strerror}") from error


def _tls_context(settings: NatsSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca)
        if settings.tls_cert:
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        files = f"tls_ca={settings.tls_ca}, tls_cert={settings.tls_cert}, tls_key={settings.tls_key}"
        raise Misconfigured(f"the TLS files for NATS cannot be used ({files}): {error}") from error
    return context
