"""Request to a model, and its reply as it arrives."""

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from agent_service.core.events import ModelUsage
from agent_service.core.phases import ModelRefusal
from agent_service.core.waiting import CallReserve
from agent_service.models.estimates import USUAL_BYTES_PER_TOKEN, lost_prompt_tokens, min_reply_tokens
from agent_service.models.prompts.prompt import Prompt
from agent_service.run.ports import ModelQuestion
from schemas.values import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`reply_tokens`: upper bound, thinking included."""

    question: ModelQuestion
    prompt: Prompt
    model: str
    reserve: CallReserve

    @property
    def reply_tokens(self) -> int:
        return self.reserve.reply_tokens

    @property
    def grammar(self) -> tuple[str, str]:
        """Names the grammar that the provider makes of the schema."""
        return self.model, self.prompt.schema_hash


@dataclass(slots=True, kw_only=True)
class Reply:
    """Reply so far. `answered`: the provider took the request. `texts`: without thinking. `shown`: bytes of text and
    visible thinking. `hidden`: thinking is in progress unseen. `usage`: None if the provider sends none. `cached_1h`:
    tokens written to a cache of one hour. `stop_reason`: empty until the end. `message`: Anthropic's other fields.
    """

    answered: bool = False
    id: str = ""
    model: str = ""
    texts: list[str] = field(default_factory=list)
    shown: int = 0
    hidden: bool = False
    stop_reason: str = ""
    usage: ModelUsage | None = None
    cached_1h: int = 0
    refusal: ModelRefusal | None = None
    cache_miss: str = ""
    message: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add_text(self, text: str) -> None:
        self.texts.append(text)
        self.add_thinking(text)

    def add_thinking(self, text: str) -> None:
        self.shown += len(text.encode("utf-8", "replace"))

    def check(self) -> None:
        """Raises ValueError for an incomplete reply."""
        for name in ("id", "model", "stop_reason"):
            if not getattr(self, name) or not isinstance(getattr(self, name), str):
                raise ValueError(f"it is no complete reply: {name}")


def count(usage: Any, name: str, missing: int | None = None) -> int:
    """A number of tokens. Raises ValueError if it is none."""
    found = usage.get(name) if isinstance(usage, Mapping) else None
    found = missing if found is None else found
    if not isinstance(found, int) or found < 0:
        raise ValueError(f"it is no complete reply: usage.{name}")
    return found


def bytes_of(prompt: Prompt) -> int:
    return prompt.size() + len(json.dumps(prompt.schema))


def usage_so_far(reply: Reply, request: Request) -> ModelUsage:
    """Usage of a call; estimated where the provider sends none."""
    state, model = request.question.state, request.model
    used = reply.usage or ModelUsage(input_tokens=lost_prompt_tokens(state, model, bytes_of(request.prompt)))
    hidden = min(request.reply_tokens, min_reply_tokens(state)) if reply.hidden else 0
    return replace(used, output_tokens=max(used.output_tokens, reply.shown // USUAL_BYTES_PER_TOKEN, hidden))
