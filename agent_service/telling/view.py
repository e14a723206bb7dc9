"""A view: what the API shows of something, frozen."""

from pydantic import BaseModel, ConfigDict, computed_field

from agent_service.core.waiting import Status


class View(BaseModel):
    """No field is invented, and each has the name that callers see or its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class OfRun(View):
    """What is told of a run that stands at `status`; `state` is the same, by the word of earlier versions."""

    run_id: str
    status: Status

    @computed_field(json_schema_extra={"deprecated": True})  # type: ignore[prop-decorator] # as pydantic documents it
    @property
    def state(self) -> Status:
        return self.status
