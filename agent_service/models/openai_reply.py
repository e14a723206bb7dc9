"""What a server that speaks OpenAI's API replied, as far as it is looked at, and checked: the SDK hands on anything.

Reasons to stop that are not known are no error: servers have their own.
"""

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Count = Annotated[int, Field(ge=0)]

_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_FENCED = re.compile(r"\s*```(?:json)?\s*(\{.*\})\s*```\s*", re.DOTALL)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Message(_Part):
    content: str | None = None
    refusal: str | None = None


class _Choice(_Part):
    message: _Message
    finish_reason: str


class _Details(_Part):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class _Usage(_Part):
    """`prompt_tokens` is the whole prompt, what was read from the cache or written to it being part of it."""

    prompt_tokens: Count
    completion_tokens: Count
    prompt_tokens_details: _Details | None = None


class Reply(_Part):
    """A chat completion."""

    id: str
    model: str
    choices: Annotated[tuple[_Choice, ...], Field(min_length=1)]
    usage: _Usage

    @property
    def stop_reason(self) -> str:
        return self.choices[0].finish_reason

    @property
    def refusal(self) -> str:
        """Why the model will not answer; empty when it does."""
        return self.choices[0].message.refusal or ""

    @property
    def text(self) -> str:
        """What was said, as it was said."""
        return self.choices[0].message.content or ""


def checked(answer: bytes) -> Reply:
    """The reply in the body of an answer. Raises ValueError, naming what is missing or of the wrong type."""
    try:
        return Reply.model_validate_json(answer)
    except ValidationError as error:
        wrong = {".".join(map(str, flaw["loc"])) or "all of it" for flaw in error.errors(include_input=False)}
        raise ValueError(f"it is no complete chat completion: {', '.join(sorted(wrong))}") from None


def unwrapped(text: str) -> str:
    """`text` without what weak models put round a reply where the server does not enforce the schema.

    A leading `<think>` block is what servers leave in that do not know the model's way of thinking; a fence round all
    of the rest is how models were taught to show JSON. Neither leaves a doubt about which object is the reply. Whatever
    else there is, such as an explanation or a second object, is for a repair.
    """
    said = _THOUGHT.sub("", text, count=1) if _THOUGHT.match(text) else text
    fenced = _FENCED.fullmatch(said)
    return fenced[1] if fenced else said
