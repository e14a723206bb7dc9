"""How an executor carried out a call, as it tells beside what came of it: for whoever has to find the call. Pure."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from schemas.events import ToolResult
from schemas.fields import Count, Text, Told


class Execution(BaseModel):
    """`job_id` is the executor's own name of the call (Ductile's: the job), `attempts` how often it ran the tool.

    `last_error` is what the tool said when it failed before.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    job_id: Annotated[Text | None, Told] = None
    attempts: Annotated[Count | None, Told] = None
    exit_code: Annotated[int | None, Told] = None
    stderr: Annotated[Text | None, Told] = None
    last_error: Annotated[Text | None, Told] = None

    def __str__(self) -> str:
        told = (
            f"job {self.job_id}" if self.job_id else "",
            f"run {self.attempts} times" if self.attempts and self.attempts > 1 else "",
            f"exit code {self.exit_code}" if self.exit_code else "",
            f"it failed before: {self.last_error}" if self.last_error else "",
        )
        return ", ".join(filter(None, told))


def execution_of(result: ToolResult) -> Execution | None:
    told = result.error.model_dump() if result.error else (result.result and result.result.model_extra) or {}
    execution = Execution.model_validate(told)
    return execution if execution.model_fields_set and execution != Execution() else None
