"""Callers as quotas name them (such as `token ci` or `bus user ann of SHOP`), and the settings of the HTTP API."""

import hashlib
import re
from typing import Annotated, get_args

from pydantic import Field

from groundwork.service.config_file import Port, Section, ServerSettings, written
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import Secret, is_loopback, secret_fault
from schemas import subjects
from schemas.operations import Scope

BUS = "bus"
"""Prefix of the names of senders on the bus, and the name of those that NATS does not name."""
SHORTEST_TOKEN, LONGEST_TOKEN = 16, 505
_SENDABLE = re.compile(rf"[!-~][ -~]{{0,{LONGEST_TOKEN - 2}}}[!-~]")
_OF_NOTHING = hashlib.sha256(b"").hexdigest()


def token_caller(name: str) -> str:
    return f"token {name}"


class QuotaSettings(Section):
    """Quota of one caller; a missing number is no limit."""

    wakes_per_minute: Annotated[int, Field(ge=1)] | None = None
    open_runs: Annotated[int, Field(ge=1)] | None = None
    bytes_per_day: Annotated[int, Field(ge=1)] | None = None
    usd_per_day: Annotated[float, Field(gt=0)] | None = None


UNBOUNDED = QuotaSettings.model_construct()


class WakersQuotaSettings(QuotaSettings):
    """Default quota of tokens without the scope `operate`."""

    wakes_per_minute: Annotated[int, Field(ge=1)] | None = 300
    open_runs: Annotated[int, Field(ge=1)] | None = 1000
    bytes_per_day: Annotated[int, Field(ge=1)] | None = 100_000_000


class TokenSettings(Section):
    """Bearer token of the HTTP API: the token itself (from a file or the environment), or its SHA-256."""

    name: Annotated[str, written(subjects.NAME.pattern, subjects.NAME_FORM)]
    scopes: frozenset[Scope] = frozenset(get_args(Scope))
    token: Secret | None = None
    sha256: Annotated[str, written("[0-9a-f]{64}", "what `printf %s TOKEN | sha256sum` prints")] | None = None
    quota: QuotaSettings | None = None

    def digest(self) -> str:
        """SHA-256 in hex. Raises Misconfigured for a token that no request can bring."""
        if (self.token is None) == (self.sha256 is None):
            raise Misconfigured(f"token {self.name}: give either `token` or `sha256`")
        if self.sha256 == _OF_NOTHING:
            raise Misconfigured(f"token {self.name}: `sha256` is that of an empty token: was the variable set?")
        if self.token is None:
            return str(self.sha256)
        secret = self.token.get_secret_value()
        if fault := secret_fault(secret, shortest=SHORTEST_TOKEN):
            raise Misconfigured(f"token {self.name} {fault}")
        if not _SENDABLE.fullmatch(secret):
            text = f"at most {LONGEST_TOKEN} printable ASCII characters, without spaces around them"
            raise Misconfigured(f"token {self.name} fits in no request: a token has {text}")
        return hashlib.sha256(secret.encode()).hexdigest()


class ApiSettings(ServerSettings):
    """Address of the HTTP API, and its callers."""

    port: Port = 8700
    tokens: tuple[TokenSettings, ...] = ()
    max_queued: Annotated[int, Field(ge=1)] = 10_000
    quota: WakersQuotaSettings = WakersQuotaSettings.model_construct()

    def quota_of(self, token: TokenSettings) -> QuotaSettings:
        return token.quota or (QuotaSettings() if "operate" in token.scopes else self.quota)

    def bearers(self) -> dict[str, TokenSettings]:
        """Tokens by their digest. Raises Misconfigured for settings that would open the API to other machines."""
        bearers: dict[str, TokenSettings] = {}
        for token in self.tokens:
            other = bearers.setdefault(token.digest(), token).name
            if other != token.name:
                raise Misconfigured(f"agent.http.tokens {other} and {token.name} are the same token: give each its own")
        if not bearers and not is_loopback(self.host):
            raise Misconfigured(
                f"the HTTP API would listen on {self.host} for everybody: configure `agent.http.tokens`, "
                "or listen on 127.0.0.1"
            )
        return bearers
