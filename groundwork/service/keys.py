"""Ed25519 signatures, and the key file with which a service authenticates its own messages.

Signatures are base64url without padding: a public key has 43 characters, a signature 86. Their library is imported on
first use. Key files have lines `<id> <made at> <64 hex digits>`, newest first: the first key makes MACs, all verify
them, and the file is read again whenever it changes.
"""

import base64
import hmac
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from groundwork.service.machine import entropy, this, token_hex, utc_now
from groundwork.service.program import loaded

PUBLIC = re.compile(r"[A-Za-z0-9_-]{43}")
SIGNATURE = re.compile(r"[A-Za-z0-9_-]{86}")


def public_of(seed: bytes) -> str:
    return _text(_signing_key(seed).verify_key.encode())


def signature(seed: bytes, message: bytes) -> str:
    """Signature by the key of a 32-byte seed. Deterministic."""
    return _text(_signing_key(seed).sign(message).signature)


def verifies(public: str, signature: str, message: bytes) -> bool:
    """False for a wrong signature, and for texts that are no key or no signature."""
    if not PUBLIC.fullmatch(public) or not SIGNATURE.fullmatch(signature):
        return False
    try:
        loaded("nacl.signing:VerifyKey")(_bytes(public)).verify(message, _bytes(signature))
    except loaded("nacl.exceptions:CryptoError"):
        return False
    return True


@lru_cache(maxsize=8)
def _signing_key(seed: bytes) -> Any:
    return loaded("nacl.signing:SigningKey")(seed)


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


KEY_BYTES = 32
MAC_BYTES = 20
_LINE = re.compile(rf"(\S+)\s+(\S+)\s+([0-9a-fA-F]{{{2 * KEY_BYTES}}})")


@dataclass(frozen=True, slots=True)
class Key:
    """`id` and `made_at` may be shown; `secret` never."""

    id: str
    made_at: str
    secret: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> "Key":
        return cls(f"k{token_hex(4)}", utc_now().strftime("%Y-%m-%dT%H:%M:%SZ"), entropy(KEY_BYTES))

    def derived(self, purpose: str) -> bytes:
        """32 bytes for one purpose; those of another cannot be derived from them."""
        return _derived(self.secret, purpose)

    def mac(self, purpose: str, parts: Sequence[str | bytes]) -> str:
        """`<id>.<base64url>` of an HMAC-SHA256 over the parts, each preceded by its length. To copy a prepared one
        costs half of preparing it for each message."""
        code = _prepared(self.secret, purpose).copy()
        for part in parts:
            content = part.encode() if isinstance(part, str) else part
            code.update(len(content).to_bytes(4, "big") + content)
        return f"{self.id}.{_text(code.digest()[:MAC_BYTES])}"


@lru_cache(maxsize=64)
def _derived(secret: bytes, purpose: str) -> bytes:
    return hmac.digest(secret, purpose.encode(), "sha256")


@lru_cache(maxsize=64)
def _prepared(secret: bytes, purpose: str) -> hmac.HMAC:
    return hmac.new(_derived(secret, purpose), digestmod="sha256")


LOOK_EVERY_S = 1.0


class KeyRing:
    """`file` is read again when it changes; None for fixed keys."""

    def __init__(self, keys: tuple[Key, ...], file: Path | None = None) -> None:
        self._keys, self._file, self._clock = keys, file, this().monotonic
        self._look_at, self._version = self._clock() + LOOK_EVERY_S, _version(file) if file else None

    @classmethod
    def open(cls, path: Path) -> "KeyRing":
        """Creates the file with a fresh key if there is none. Raises Misconfigured, also later when it changes."""
        with _misconfigured(path):
            if not path.exists():
                store_folder.create(path, _lines((Key.fresh(),)))
            ring = cls((), path)  # the version before the keys: a change between them is seen later
            ring._keys = read(path)
            return ring

    @classmethod
    def fresh(cls) -> "KeyRing":
        return cls((Key.fresh(),))

    @property
    def keys(self) -> tuple[Key, ...]:
        if self._file and (now := self._clock()) >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            with suppress(OSError):  # the file is being replaced, or was lost: the known keys hold until the next start
                if (version := _version(self._file)) != self._version:
                    self._keys, self._version = read(self._file), version
        return self._keys

    def checks(self, mac: str, purpose: str, *parts: str | bytes) -> bool:
        """True if `mac` was made of these parts with any key of the ring. Takes constant time."""
        made_with, keys = mac.partition(".")[0], self.keys
        key = next((key for key in keys if key.id == made_with), keys[0])
        return hmac.compare_digest(key.mac(purpose, parts).encode(), mac.encode(errors="surrogatepass"))


def _version(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def read(path: Path) -> tuple[Key, ...]:
    """The keys in a file. Raises Misconfigured, quoting nothing of it, and OSError."""
    keys = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if not (found := _LINE.fullmatch(line.strip())):
            raise Misconfigured(f"{path}, line {number}: a key is `<id> <made at> <{2 * KEY_BYTES} hex digits>`")
        keys.append(Key(found[1], found[2], bytes.fromhex(found[3])))
    if not keys:
        raise Misconfigured(f"{path} holds no key: restore it from your backup, or delete it to begin with a new one")
    return tuple(keys)


def write(path: Path, keys: Sequence[Key]) -> None:
    """Replaces the file, which only its owner may read. Raises Misconfigured."""
    with _misconfigured(path):
        store_folder.write(path, _lines(keys))


def _lines(keys: Sequence[Key]) -> str:
    return "".join(f"{key.id} {key.made_at} {key.secret.hex()}\n" for key in keys)


@contextmanager
def _misconfigured(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Misconfigured(f"the keys in {path} cannot be read or written: {error.strerror}") from error
