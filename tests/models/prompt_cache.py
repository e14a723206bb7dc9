"""The prompt cache of Anthropic's API, simulated.

Rules of the vendor's documentation: the cache is an exact match of the prompt's beginning, in the order tools, output
format, system, messages; per model; written at breakpoints only, and not below a least size; read at the longest match
that ends at a breakpoint or at most 20 blocks before one; kept for the breakpoint's time to live after its last use.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from tests.models.tokens import block_tokens, blocks, canonical, request_tokens, tokens

LOOK_BACK = 20
LIVES_S = {"5m": 300.0, "1h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """Tokens of one prompt: `read` from the cache, written to it by time to live, and the rest."""

    read: int
    written: dict[str, int]
    rest: int

    def usage(self) -> dict[str, Any]:
        """As the API reports them."""
        return {
            "input_tokens": self.rest,
            "cache_read_input_tokens": self.read,
            "cache_creation_input_tokens": sum(self.written.values()),
            "cache_creation": {f"ephemeral_{ttl}_input_tokens": count for ttl, count in self.written.items()},
        }


@dataclass(frozen=True, slots=True)
class _Place:
    """The end of a block: the hash and the tokens of everything up to it, and the time to live if it is to be kept."""

    digest: str
    tokens: int
    ttl: str | None


@dataclass(slots=True)
class PromptCache:
    """Of one organisation. `now` is in seconds, and stands still until a test moves it."""

    now: float = 0.0
    _expires: dict[str, tuple[float, str]] = field(default_factory=dict)

    def use(self, body: dict[str, Any], least_tokens: int) -> CacheUse:
        """Read and write the prompt of `body`; beginnings of fewer tokens are not kept."""
        places = _places(body)
        marked = [at for at, place in enumerate(places) if place.ttl]
        hit = max((self._longest(places, at) for at in marked), default=-1)
        read = places[hit].tokens if hit >= 0 else 0
        written = dict.fromkeys(LIVES_S, 0)
        kept = read
        for at in marked:
            kept += self._keep(places[at], written, kept) if at > hit and places[at].tokens >= least_tokens else 0
        for at in {hit, *(at for at in marked if at < hit)} - {-1}:
            self._touch(places[at].digest)
        return CacheUse(read=read, written=written, rest=request_tokens(body) - kept)

    def _longest(self, places: list[_Place], marked: int) -> int:
        back = range(marked, max(-1, marked - LOOK_BACK), -1)
        return next((at for at in back if self._alive(places[at].digest)), -1)

    def _keep(self, place: _Place, written: dict[str, int], kept: int) -> int:
        """Keep what ends at `place`; how many tokens that adds to the `kept` ones."""
        ttl = place.ttl or "5m"
        self._expires[place.digest] = (self.now + LIVES_S[ttl], ttl)
        written[ttl] += place.tokens - kept
        return place.tokens - kept

    def _alive(self, digest: str) -> bool:
        return self._expires.get(digest, (float("-inf"), ""))[0] > self.now

    def _touch(self, digest: str) -> None:
        if self._alive(digest):
            ttl = self._expires[digest][1]
            self._expires[digest] = (self.now + LIVES_S[ttl], ttl)


def _places(body: dict[str, Any]) -> list[_Place]:
    places: list[_Place] = []
    digest, count = hashlib.sha256(str(body["model"]).encode()), 0
    for text, size, control in _pieces(body):
        digest.update(hashlib.sha256(text.encode()).digest())
        count += size
        ttl = control.get("ttl", "5m") if control else None
        places.append(_Place(digest.hexdigest(), count, ttl))
    return places


def _pieces(body: dict[str, Any]) -> list[tuple[str, int, dict[str, Any] | None]]:
    """The prompt's blocks in their order: text, tokens, and the mark of a breakpoint."""
    tools = body.get("tools") or ()
    pieces = [(canonical(_bare(tool)), tokens(canonical(tool)), tool.get("cache_control")) for tool in tools]
    if output_format := (body.get("output_config") or {}).get("format"):
        pieces.append((canonical(output_format), tokens(canonical(output_format)), None))
    turns = [("system", blocks(body.get("system"))), *((m["role"], blocks(m["content"])) for m in body["messages"])]
    for role, said in turns:
        pieces += [(role + canonical(_bare(b)), block_tokens(b), b.get("cache_control")) for b in said]
    return pieces


def _bare(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}
