"""Cassettes: what a model was asked and answered, kept in a file, to be answered again without the model.

One JSONL file per scenario: a heading, then a line per call with its number, phase, the hash of the whole prompt and
schema, what it was estimated to spend, and the answer or the error. No prompt is in it, and no secret: what the
configuration calls one is replaced. A prompt that was not recorded is never answered by the answer to another one.
"""

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from agent_service.core.phases import Phase, Unusable
from agent_service.errors import ModelError
from agent_service.models.prompts.prompt import compose, version
from agent_service.models.scripted_model import Fault
from agent_service.ports import Answer, Estimate, Model, ModelCall, Question
from groundwork.service.errors import Misconfigured

HIDDEN = "***"
SHORTEST_SECRET = 8

_ANSWER = TypeAdapter(Answer)


class NotRecorded(Exception):
    """The cassette does not hold the answer to what is asked now."""


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Heading(_Line):
    """`fused`, `verifies`: how the run was asked to think. `templates`: the version of the prompts."""

    cassette: Literal[1] = 1
    scenario: str
    fused: bool
    verifies: bool = False
    templates: str


class Recorded(_Line):
    """One call. Without `answer` and `error` it was estimated, and never made."""

    call: Annotated[int, Field(ge=1)]
    phase: Phase
    prompt: str
    estimate: Estimate | None
    answer: Answer | None = None
    error: Fault | None = None

    @property
    def was_made(self) -> bool:
        return self.answer is not None or self.error is not None

    def asks(self, question: Question, prompt: str) -> bool:
        return (self.call, self.prompt) == (question.call, prompt)


class Recorder:
    """Fills the port Model, around the one that is recorded."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._lines: list[Recorded] = []

    def prepare(self, question: Question) -> ModelCall:
        call, prompt = self._model.prepare(question), prompt_hash(question)
        if not any(line.asks(question, prompt) for line in self._lines):
            self._add(question, prompt, call.estimate)
        return replace(call, make=partial(self._make, call, question, prompt))

    async def _make(self, call: ModelCall, question: Question, prompt: str) -> Answer:
        self._lines = [line for line in self._lines if line.was_made or not line.asks(question, prompt)]
        try:
            answer = _recordable(await call.make())
        except ModelError as error:
            fault = Fault(
                remedy=error.remedy,
                error_class=error.error_class,
                message=str(error),
                retry_after_s=error.retry_after_s,
            )
            self._add(question, prompt, call.estimate, error=fault)
            raise
        self._add(question, prompt, call.estimate, answer=answer)
        return answer

    def save(self, file: Path, heading: Heading, *, secrets: Collection[str]) -> None:
        """Write the cassette, without secrets."""
        lines = (line.model_dump_json() for line in (heading, *self._lines))
        text = "".join(f"{_without(secrets, line)}\n" for line in lines)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def _add(
        self,
        question: Question,
        prompt: str,
        estimate: Estimate | None,
        *,
        answer: Answer | None = None,
        error: Fault | None = None,
    ) -> None:
        line = Recorded(
            call=question.call, phase=question.phase, prompt=prompt, estimate=estimate, answer=answer, error=error
        )
        self._lines.append(line)


class Player:
    """Fills the port Model from a cassette: every recorded call is answered once, in the order of the recording."""

    def __init__(self, file: Path) -> None:
        """Raises Misconfigured for a file that is no cassette."""
        self._file = file
        try:
            heading, *lines = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
            self._heading = Heading.model_validate_json(heading)
            self._lines = [Recorded.model_validate_json(line) for line in lines]
            self._left = [line for line in self._lines if line.was_made]
        except FileNotFoundError as error:
            raise Misconfigured(f"there is no cassette {file}: record it with --record {file.parent}") from error
        except (OSError, ValueError, ValidationError) as error:
            remedy = f"record it anew with --record {file.parent}"
            raise Misconfigured(f"cassette {file} cannot be read ({type(error).__name__}): {remedy}") from error

    @property
    def fused(self) -> bool:
        return self._heading.fused

    @property
    def verifies(self) -> bool:
        return self._heading.verifies

    def prepare(self, question: Question) -> ModelCall:
        prompt = prompt_hash(question)
        estimate = self._found(question, prompt, self._lines).estimate
        return ModelCall(estimate=estimate, make=partial(self._make, question, prompt))

    async def _make(self, question: Question, prompt: str) -> Answer:
        line = self._found(question, prompt, self._left)
        self._left.remove(line)
        if line.error:
            raise line.error.error()
        if line.answer is None:
            raise AssertionError("only calls that were made are left to be answered")
        return line.answer

    def _found(self, question: Question, prompt: str, lines: Iterable[Recorded]) -> Recorded:
        found = next((line for line in lines if line.asks(question, prompt)), None)
        if found is None:
            raise NotRecorded(self._explained(question))
        return found

    def _explained(self, question: Question) -> str:
        what = f"call {question.call} ({question.phase})"
        known = any(line.call == question.call for line in self._lines)
        why = f"the prompt of {what} is not the recorded one" if known else f"{what} was not recorded"
        changed = "" if self._heading.templates == version() else ", and the templates of prompts have changed since"
        return f"{why}{changed}: record anew with --record {self._file.parent} --scenario {self._heading.scenario}"


def _recordable(answer: Answer) -> Answer:
    """The answer; one that would not come back from a file as it is counts as unusable, now and when it is replayed."""
    try:
        if _ANSWER.validate_json(_ANSWER.dump_json(answer)) == answer:
            return answer
    except (PydanticSerializationError, ValidationError):
        pass
    return replace(answer, decision=Unusable(reason="the reply is not JSON in UTF-8"), plan=None)


def prompt_hash(question: Question) -> str:
    """Of everything that the model is shown, with the schema of its reply."""
    prompt = compose(question)
    shown = json.dumps([prompt.system, prompt.message, prompt.schema], ensure_ascii=False)
    return hashlib.sha256(shown.encode()).hexdigest()[:32]


def _without(secrets: Collection[str], text: str) -> str:
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(json.dumps(secret, ensure_ascii=False)[1:-1], HIDDEN)
    return text
