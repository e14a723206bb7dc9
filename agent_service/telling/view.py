"""A view: what the API shows of something, frozen."""

from pydantic import BaseModel, ConfigDict

from agent_service.core.waiting import Status


class View(BaseModel):
    """No field is invented, and each has the name that callers see or its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class OfRun(View):
    """What is told of a run that stands at `status`."""

    run_id: str
    status: Status
