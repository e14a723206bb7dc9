"""The `nats:` section of a configuration file, shared by both services."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from groundwork.nats.settings import NatsSettings
from groundwork.service.address import login_in, secrets_in, without_login
from groundwork.service.secret import fault_of, unfit


def _with_fit_logins(urls: tuple[str, ...]) -> tuple[str, ...]:
    for url in urls:
        login = login_in(url)
        if login is not None and (fault := fault_of(login)):
            raise unfit(f"the password or token in the address of {without_login(url)} {fault}")
    return urls


class NatsSection(BaseModel):
    """Where the bus is and how to log in. One way of logging in is enough; files are named, never their content."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    urls: Annotated[tuple[str, ...], AfterValidator(_with_fit_logins)] = Field(("nats://127.0.0.1:4222",), repr=False)
    """Any servers of one cluster."""
    creds_file: Path | None = None
    nkey_seed_file: Path | None = None
    user: str | None = None
    password: SecretStr | None = None
    token: SecretStr | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_first: bool = False
    """Start TLS before a word is said."""
    inbox_prefix: str = "_INBOX"

    def settings(self, name: str) -> NatsSettings:
        """As the link takes them; `name` is how the connection appears on the server."""
        return NatsSettings(
            urls=self.urls,
            creds_file=self.creds_file,
            nkey_seed_file=self.nkey_seed_file,
            user=self.user,
            password=self.password.get_secret_value() if self.password else None,
            token=self.token.get_secret_value() if self.token else None,
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_first=self.tls_first,
            name=name,
            inbox_prefix=self.inbox_prefix,
        )

    def secrets(self) -> tuple[str, ...]:
        """Values that no log may show."""
        given = (s.get_secret_value() for s in (self.password, self.token) if s)
        return (*given, *(secret for url in self.urls for secret in secrets_in(url)))
