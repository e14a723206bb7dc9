"""The prompt cache of OpenAI's API, simulated by the rules of the vendor's documentation.

The beginning of a prompt is the schema of its reply, then the messages. Below 1024 tokens nothing is kept. Calls find
what calls with the same model and `prompt_cache_key` have left.

Until GPT-5.5   the longest beginning that any prompt before had, in steps of 128 tokens; writing is not counted
From GPT-5.6    at marks only: read at the longest one that was written, written at the last four; the end of the
                prompt is a mark too, unless `prompt_cache_options.mode` is `explicit`
"""

from dataclasses import dataclass, field
from itertools import takewhile

from tests.models.openai_rules import MODELS, parts
from tests.models.tokens import canonical, tokens
from tests.models.wire import Body

LEAST, STEP, MOST_WRITTEN = 1024, 128, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """Tokens of one prompt, of which some were read from the cache and some written to it."""

    prompt: int
    read: int
    written: int


@dataclass(slots=True)
class PromptCache:
    """Of one organisation. Nothing expires."""

    _kept: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def use(self, body: Body) -> CacheUse:
        """Read and write the prompt of `body`."""
        kept = self._kept.setdefault((body["model"], body.get("prompt_cache_key", "")), [])
        return _at_marks(body, kept) if MODELS[body["model"]].marked else _anywhere(body, kept)


def rendered(body: Body) -> list[tuple[str, bool]]:
    """The prompt in pieces, with whether a mark ends them."""
    pieces = [(canonical(body.get("response_format")), False)]
    for message in body["messages"]:
        said = parts(message["content"])
        pieces += [(f"<{message['role']}>{part['text']}", "prompt_cache_breakpoint" in part) for part in said]
    return pieces


def _anywhere(body: Body, kept: list[str]) -> CacheUse:
    prompt = "".join(text for text, _ in rendered(body))
    longest = max((tokens(_common(prompt, old)) for old in kept), default=0)
    read = longest - longest % STEP if longest >= LEAST else 0
    kept.append(prompt)
    return CacheUse(prompt=tokens(prompt), read=read, written=0)


def _common(prompt: str, old: str) -> str:
    return prompt[: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, old, strict=False)))]


def _at_marks(body: Body, kept: list[str]) -> CacheUse:
    beginning, ends = "", []
    for text, marked in rendered(body):
        beginning += text
        ends += [beginning] if marked else []
    if (body.get("prompt_cache_options") or {}).get("mode") != "explicit":
        ends.append(beginning)
    read = max((tokens(end) for end in ends if end in kept), default=0)
    new = [end for end in ends[-MOST_WRITTEN:] if tokens(end) >= LEAST and end not in kept]
    kept += new
    written = max(0, max(map(tokens, new), default=0) - read)
    return CacheUse(prompt=tokens(beginning), read=read, written=written)
