"""Secrets in settings, neither empty nor too short, texts without them, and addresses without the login in them."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import BeforeValidator, SecretStr
from pydantic_core import PydanticCustomError

UNFIT = "unfit_secret"
"""Type of this module's validation errors: their texts quote no secret."""
SHORTEST = 8
"""Characters of any secret, also of one that another service gave us."""
SHORTEST_KEY = 16
"""Characters of a signing secret: keys can be tried offline on a signed message."""
MAKE_ONE = "such as from `openssl rand -hex 24`"


SHORTEST_MASKED = 6
"""Characters of a secret's line that is masked where it stands alone."""


@lru_cache(maxsize=64)
def spellings(secrets: tuple[str, ...], *, in_json: bool = False) -> re.Pattern[str]:
    """Finds each secret and each line of it as it is, and as Python, JSON (also that of Go and PHP) and URLs write it.
    `in_json`: in a text that was written as JSON then."""
    parts = {part for secret in secrets for part in (secret, *secret.splitlines()) if len(part) >= SHORTEST_MASKED}
    in_any = ("".join(_in_any_spelling(char, in_json=in_json) for char in part) for part in parts)
    return re.compile("|".join(sorted(in_any, key=len, reverse=True)) or "(?!)")


def _in_any_spelling(char: str, *, in_json: bool) -> str:
    if char.isascii() and char.isalnum():
        return char
    raw, number = char.encode(errors="surrogatepass"), f"\\u{ord(char):04x}"
    in_url = quote(raw, safe="")
    found = {char, repr(char)[1:-1], repr(raw)[2:-1], json.dumps(char)[1:-1], f"\\{char}"}
    found |= {number, number.upper().replace("U", "u"), in_url, in_url.lower()}
    forms = {json.dumps(one)[1:-1] for one in found} if in_json else found
    return f"(?:{'|'.join(map(re.escape, sorted(forms, key=len, reverse=True)))})"


def masked(text: str, secrets: Iterable[str]) -> str:
    return spellings(tuple(secrets)).sub("***", text)


def secret_fault(secret: str, *, shortest: int = SHORTEST) -> str:
    """Fault of a secret, with the remedy; empty for none."""
    length = len(secret.strip())
    if not length:
        return "is empty: set the variable or write the file that it comes from, or leave the setting out"
    if length < shortest:
        return f"is too short: a secret has at least {shortest} characters, {MAKE_ONE}"
    return ""


def unfit(fault: str) -> PydanticCustomError:
    return PydanticCustomError(UNFIT, "{fault}", {"fault": fault})


@dataclass(frozen=True, slots=True)
class InFile:
    """Secret in a file. `beside`: its setting holds a secret, too."""

    path: Any
    beside: bool = False

    def text(self) -> str:
        """Raises OSError, TypeError or ValueError if there is no readable text file."""
        return Path(self.path).read_text(encoding="utf-8").strip()


def _read(given: object, *, shortest: int = SHORTEST) -> object:
    if isinstance(given, InFile):
        if given.beside:
            raise unfit("is given itself, and by the name of its file: keep one of them")
        try:
            given = given.text()
        except (OSError, TypeError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "no path, or no UTF-8 text"
            raise unfit(f"cannot read a secret there ({why}); name a readable text file") from None
    if isinstance(given, str) and (fault := secret_fault(given, shortest=shortest)):
        raise unfit(fault)
    return given


Secret = Annotated[SecretStr, BeforeValidator(_read)]
SigningSecret = Annotated[SecretStr, BeforeValidator(partial(_read, shortest=SHORTEST_KEY))]


def is_address(url: str, *schemes: str) -> bool:
    try:
        address = urlsplit(url)
        there = address.scheme in schemes and bool(address.hostname) and address.port != 0
        if re.fullmatch(r"[\d.]+", address.hostname or ""):
            ip_address(str(address.hostname))
    except ValueError:  # a port, an IPv4 address, or brackets around what is no IPv6
        return False
    return there and url.isascii() and url.isprintable() and " " not in url


def without_login(url: str) -> str:
    scheme, _, _, place = _split(url)
    return scheme + place


def login_in(url: str) -> str | None:
    """Password or token in the address, as written there; None without a login."""
    _, login, at, _ = _split(url)
    return (login.partition(":")[2] if ":" in login else login) if at else None


def secrets_in_url(url: str) -> tuple[str, ...]:
    """Secrets of the address for redaction: as written, and decoded."""
    login = login_in(url)
    return tuple(dict.fromkeys((login, unquote(login)))) if login else ()


def keeps_secrets(url: str) -> bool:
    """True if the connection uses TLS, or does not leave this machine."""
    address = urlsplit(url)
    return address.scheme != "http" or is_loopback(address.hostname or "")


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_HOST_AND_PATH = re.compile(r"(?i)https?://(localhost|\[[0-9a-f:.]+\]|[a-z0-9-]+(\.[a-z0-9-]+)+)[/?#]")


def _split(url: str) -> tuple[str, str, str, str]:
    """Scheme, login, `@` and place. A login may hold / ? # that should be escaped, unless what is before them is
    plainly a host."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        scheme, rest = "", url
    login, at, place = ("", "", rest) if _HOST_AND_PATH.match(url) else rest.rpartition("@")
    return scheme + mark, login, at, place
