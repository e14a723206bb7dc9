"""Ed25519 signatures. Texts are base64url without padding: a public key has 43 characters, a signature 86.

The library is loaded by the first of them, not with this module: a start after a crash does not wait for it.
"""

import base64
import re
from functools import lru_cache
from typing import Any

from groundwork.service.beginning import loaded

PUBLIC = re.compile(r"[A-Za-z0-9_-]{43}")
SIGNATURE = re.compile(r"[A-Za-z0-9_-]{86}")


def public_of(seed: bytes) -> str:
    """The public key to a seed of 32 bytes."""
    return _text(_signing_key(seed).verify_key.encode())


def signature(seed: bytes, message: bytes) -> str:
    """By the key of that seed of 32 bytes. The same message always has the same one."""
    return _text(_signing_key(seed).sign(message).signature)


def verifies(public: str, signature: str, message: bytes) -> bool:
    """Whether the holder of that key has signed the message; also of texts that are no key or no signature."""
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
