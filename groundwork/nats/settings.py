"""Settings of both services: their section `nats:` (addresses, login, TLS), and what else they have in common. Secrets
are never shown."""

import ssl
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from groundwork.service.config_file import LogSettings, Section, written
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import (
    Secret,
    is_address,
    is_loopback,
    login_in,
    secret_fault,
    secrets_in_url,
    unfit,
    without_login,
)
from groundwork.telemetry.settings import TelemetrySettings

EXAMPLE = "nats://127.0.0.1:4222"
SCHEMES = ("nats", "tls")
_INBOX = written(r"_INBOX[A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*", "_INBOX, or _INBOX.NAME")
LOGINS = ("creds_file", "nkey_seed_file", "user", "password", "token")


def _usable(urls: tuple[str, ...]) -> tuple[str, ...]:
    if not urls:
        raise ValueError(f'name at least one server, as in ["{EXAMPLE}"]')
    parts = ((url if "://" in url else f"nats://{url}").partition("://") for url in urls)
    urls = tuple(f"{scheme.lower()}://{place}" for scheme, _, place in parts)  # nats-py knows no other spelling
    for url in urls:
        if not is_address(url, *SCHEMES):
            hint = ", and / ? # in its login as %2F %3F %23" if login_in(url) else ""
            raise ValueError(f"{without_login(url)} is not an address of a NATS server: write it like {EXAMPLE}{hint}")
        login = login_in(url)
        if login is not None and (fault := secret_fault(login)):
            raise unfit(f"the password or token in the address of {without_login(url)} {fault}")
    return urls


class NatsSettings(Section):
    """One way to log in: a file, which is named, never its content; user and password; or a token."""

    urls: Annotated[tuple[str, ...], AfterValidator(_usable)] = Field((EXAMPLE,), repr=False)
    creds_file: Path | None = None
    nkey_seed_file: Path | None = None
    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_first: bool = False
    inbox_prefix: Annotated[str, _INBOX] = "_INBOX"

    @model_validator(mode="after")
    def _has_one_login(self) -> Self:
        given = [name for name in LOGINS if getattr(self, name) is not None]
        if len(given) > 1 and given != ["user", "password"]:
            raise ValueError(f"{' and '.join(given)} are several logins: keep one")
        if self.tls_key and not self.tls_cert:
            raise ValueError("tls_key needs the certificate that it belongs to: set tls_cert")
        return self

    def __repr__(self) -> str:
        return f"NatsSettings({self.servers})"

    @property
    def servers(self) -> str:
        return ", ".join(map(without_login, self.urls))

    @property
    def plaintext_hosts(self) -> tuple[str, ...]:
        """Hosts of other machines that are reached without TLS."""
        hosts = tuple(urlsplit(url).hostname or "" for url in self.urls)
        return () if self.encrypted else tuple(host for host in hosts if not is_loopback(host))

    def without_login(self) -> Self:
        logins = (*LOGINS, "tls_cert", "tls_key")
        return self.model_copy(update={"urls": tuple(map(without_login, self.urls)), **dict.fromkeys(logins)})

    @property
    def encrypted(self) -> bool:
        """True if TLS is required: then no server is told anything without it."""
        asked = self.tls_ca or self.tls_cert or self.tls_first
        return bool(asked) or any(url.startswith("tls://") for url in self.urls)

    def secrets(self) -> tuple[str, ...]:
        return (*super().secrets(), *(secret for url in self.urls for secret in secrets_in_url(url)))


JETSTREAM = Path("jetstream")
"""Value of `store` for a store on the bus, which several processes share."""


class ServiceSettings(Section):
    nats: NatsSettings = NatsSettings.model_construct()
    store: Path
    cache: Path
    keys_file: Path | None = None
    lease_s: Annotated[float, Field(ge=1, le=3600)] = 10.0
    telemetry: TelemetrySettings = TelemetrySettings.model_construct()
    log: LogSettings = LogSettings.model_construct()

    @property
    def shared(self) -> bool:
        return self.store == JETSTREAM

    def private_folder(self) -> Path:
        """Folder of what is not shared."""
        return self.cache if self.shared else self.store

    def keys_path(self) -> Path:
        beside = type(self).model_fields["store"].default if self.shared else self.store
        named = beside if beside.name else beside.absolute()
        return self.keys_file or named.with_name(f"{named.name}.keys")


def client_options(settings: NatsSettings, name: str) -> dict[str, Any]:
    """Options for `nats.aio.client.Client.connect`. Raises Misconfigured when a file cannot be used."""
    options: dict[str, Any] = {
        "servers": list(settings.urls),
        "name": name,
        "inbox_prefix": settings.inbox_prefix,
        "user": settings.user,
        "password": settings.password and settings.password.get_secret_value(),
        "token": settings.token and settings.token.get_secret_value(),
        "user_credentials": _readable(settings.creds_file, "credentials"),
        "nkeys_seed": _readable(settings.nkey_seed_file, "nkey seed"),
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 0.25,
        "ping_interval": 10,
        "max_outstanding_pings": 2,
        "skip_subject_validation": True,  # `BusClient.put` did it
        "pending_size": 0,  # no buffer while disconnected: what was not sent is known not to be sent
    }
    if settings.encrypted:
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
