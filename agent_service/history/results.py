"""What a result tells beside its fact: in words, and how its executor carried it out."""

from contextlib import suppress
from typing import Annotated

from pydantic import BaseModel, ConfigDict

from agent_service.core.acting import output_of, summary_of_output
from agent_service.core.continuing import wish_of
from agent_service.core.events import ToolReturned
from agent_service.core.facts import AttemptAnswered
from agent_service.run.journal import Record
from schemas.continuation import ContinuationInvalid, read
from schemas.events import ToolResult
from schemas.fields import Count, Text, Told


class Execution(BaseModel):
    """`job_id` names the call, `attempts` counts how often the tool ran, `last_error` is its last failure."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

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


def execution_of(result: ToolResult | None) -> Execution | None:
    if result is None:
        return None
    told = result.error.model_dump() if result.error else (result.result and result.result.model_extra) or {}
    execution = Execution.model_validate(told)
    return execution if execution.model_fields_set and execution != Execution() else None


def result_of(record: Record, step: int) -> ToolResult | None:
    """The result of the step in the entry; None where silence or a person's word is the answer."""
    event = record.event
    return event.result if isinstance(event, ToolReturned) and event.result.step == step else None


def summary_of_answer(answer: AttemptAnswered, result: ToolResult | None) -> str:
    """Empty where it is an error, or nothing waited for it."""
    if result is None or answer.error or answer.status == "refused":
        return ""
    if result.status == "continuation":
        with suppress(ContinuationInvalid):
            return wish_of(read(result.result))
    return summary_of_output(output_of(result))
