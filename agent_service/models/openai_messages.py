"""A prompt as messages of OpenAI's chat completions, laid out so that the server finds its beginning again. Pure.

Every server finds the beginnings that it knows by itself, if at all, with one exception: from GPT-5.6 on nothing is
found at OpenAI but at a mark, and what is written there costs more than plain input. Older models refuse marks.
"""

import re
from collections.abc import Collection
from typing import Any

from agent_service.models.prompts.prompt import Prompt

FIRST_MARKED = (5, 6)

_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?")


def plain(prompt: Prompt) -> dict[str, Any]:
    """The parameters for any server. Each message is one text: Ollama would make a message of every part."""
    return _messages("\n\n".join(prompt.system), "\n\n".join(prompt.message))


def cached(prompt: Prompt, model: str, key: str) -> dict[str, Any]:
    """The parameters for OpenAI. Calls with the same `key` (at most 64 characters) are led to the same cache."""
    version = _VERSION.match(model)
    if not version or (int(version[1]), int(version[2] or 0)) < FIRST_MARKED:
        return {"prompt_cache_key": key, **plain(prompt)}
    # Without this the end of the tail is marked as well: paid for in every call, and never found again.
    return {"prompt_cache_key": key, "prompt_cache_options": {"mode": "explicit"}, **_marked(prompt)}


def _marked(prompt: Prompt) -> dict[str, Any]:
    """With the four marks that can be written: after the skills, the case, and the two newest notes.

    The call before has written what ends with the older of these notes: this one finds it there, and writes the newer.
    """
    newest = len(prompt.message) - 2
    return _messages(_parts(prompt.system, {1}), _parts(prompt.message, {0, newest - 1, newest}))


def _parts(blocks: tuple[str, ...], marked: Collection[int]) -> list[dict[str, Any]]:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    return [
        {"type": "text", "text": f"{block}\n\n", **(mark if at in marked else {})} for at, block in enumerate(blocks)
    ]


def _messages(system: Any, user: Any) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": user}]}
