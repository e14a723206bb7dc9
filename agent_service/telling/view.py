"""A view: what the API shows of something, frozen."""

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """No field is invented, and each has the name that callers see or its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
