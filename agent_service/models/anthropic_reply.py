"""What Claude's API replied, as far as it is looked at, and checked: the SDK hands on whatever came.

Kinds of blocks and stop reasons that are not known are no error: new ones appear without a new version of the API.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


class _Block(_Part):
    type: str
    text: str | None = None


class _StopDetails(_Part):
    category: str | None = None
    explanation: str | None = None


class _Written(_Part):
    ephemeral_1h_input_tokens: Count | None = None


class _Usage(_Part):
    """`input_tokens` is what was neither read from the cache nor written to it."""

    input_tokens: Count
    output_tokens: Count
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: _Written | None = None


class _Miss(_Part):
    type: str
    cache_missed_input_tokens: Count | None = None


class _Diagnostics(_Part):
    cache_miss_reason: _Miss | None = None


class Reply(_Part):
    """A message of the model."""

    id: str
    model: str
    content: tuple[_Block, ...]
    stop_reason: str
    stop_details: _StopDetails | None = None
    usage: _Usage
    diagnostics: _Diagnostics | None = None

    def text(self) -> str:
        """What was said, without the thinking before it."""
        return "".join(block.text or "" for block in self.content if block.type == "text")

    def cache_miss(self) -> str:
        """Why the cache was not used, where the provider says so; empty when nothing is wrong.

        The provider compares requests message by message, and ours is one message that ends anew in every call: that it
        has changed is news only when nothing was read from the cache.
        """
        why = self.diagnostics.cache_miss_reason if self.diagnostics else None
        if why is None or (why.type == "messages_changed" and self.usage.cache_read_input_tokens):
            return ""
        return f"{why.type} ({why.cache_missed_input_tokens} tokens)" if why.cache_missed_input_tokens else why.type


def checked(answer: object) -> Reply:
    """The reply in what the SDK returned. Raises ValueError, naming what is missing or of the wrong type."""
    try:
        return Reply.model_validate(answer)
    except ValidationError as error:
        wrong = {".".join(map(str, flaw["loc"])) or "all of it" for flaw in error.errors(include_input=False)}
        raise ValueError(f"it is no complete message: {', '.join(sorted(wrong))}") from None
