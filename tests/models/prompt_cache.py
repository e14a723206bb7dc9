"""Tokens and the prompt cache of Anthropic's API, as far as tests foresee them: a token is a quarter of the bytes.

Rules of the vendor's documentation: the cache is an exact match of the prompt's beginning, in the order tools, output
format, system, messages; per model; written at breakpoints only, and not below a least size; read at the longest match
that ends at a breakpoint or at most 20 blocks before one. Nothing that was written runs out here.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

BYTES_PER_TOKEN, LOOK_BACK = 4, 20

Body = dict[str, Any]


def tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def blocks(content: Any) -> list[Body]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def request_tokens(body: Body) -> int:
    return sum(size for _, size, _ in _pieces(body))


class PromptCache:
    def __init__(self) -> None:
        self._known: set[str] = set()

    def use(self, body: Body, least_tokens: int) -> Body:
        """Reads and writes the prompt of `body` and returns the usage; prefixes of fewer tokens are not cached."""
        digest, count, hit, read = hashlib.sha256(str(body["model"]).encode()), 0, -1, 0
        places: list[tuple[str, int, str | None]] = []
        for text, size, ttl in _pieces(body):
            digest.update(hashlib.sha256(text.encode()).digest())
            count += size
            places.append((digest.hexdigest(), count, ttl))
        marked = [at for at, (_, _, ttl) in enumerate(places) if ttl]
        for at in (at for mark in marked for at in range(max(0, mark - LOOK_BACK + 1), mark + 1)):
            if places[at][0] in self._known and at > hit:
                hit, read = at, places[at][1]
        written, kept = {"5m": 0, "1h": 0}, read
        for at in marked:
            name, end, ttl = places[at]
            if at > hit and end >= least_tokens:
                self._known.add(name)
                written[ttl or "5m"] += end - kept
                kept = end
        return {
            "input_tokens": count - kept,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": sum(written.values()),
            "cache_creation": {f"ephemeral_{ttl}_input_tokens": size for ttl, size in written.items()},
        }


def _pieces(body: Body) -> Iterator[tuple[str, int, str | None]]:
    """The prompt's blocks in order: text, tokens, and the time to live of a breakpoint."""
    if output_format := (body.get("output_config") or {}).get("format"):
        yield canonical(output_format), tokens(canonical(output_format)), None
    turns = [("system", blocks(body.get("system"))), *((m["role"], blocks(m["content"])) for m in body["messages"])]
    for role, said in turns:
        for block in said:
            control = block.get("cache_control")
            yield role + block["text"], tokens(block["text"]), control.get("ttl", "5m") if control else None
