"""One tool call and how it ended, as the gateway speaks of it whoever carries it out. Values only.

Every call ends in one verdict: an outcome, "it never started", or "unknown". The last is the honest answer when the
tool may or may not have done its work; what follows from it is for the policy to say, not for whoever ran the tool.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pydantic import JsonValue


class AlreadyStarted(Exception):
    """A call with this key was started before: resume it, never run it again."""


class Unwanted(Exception):
    """Nobody wants the call any more: it is not started."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One attempt of one step. `key` is `run_id:step:tool:attempt`: the same call always has the same key.

    `deadline_at`: how long the tool may take. `wanted_until`: how long its answer is waited for, which may be longer;
    None where that is not known. `complete`: the payload is what the tool is given; else the call can be looked for,
    and must not be sent. `may_repeat`: it reads, or repeating it does no harm.
    """

    key: str
    plugin: str
    command: str
    payload: Mapping[str, JsonValue]
    deadline_at: datetime
    wanted_until: datetime | None = None
    complete: bool = True
    may_repeat: bool = False


@dataclass(frozen=True, slots=True)
class ProducedArtifact:
    """Content that a tool made. `name` is one safe path part: `[A-Za-z0-9._-]`, at most 100, no leading dot or dash."""

    name: str
    content_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of the execution beside its outcome. `attempts`: how often whoever ran it did so, where it says.

    `stderr`: its end, `last_error`: why the last attempt failed where others follow; both without secrets."""

    job_id: str | None = None
    attempts: int | None = None
    exit_code: int | None = None
    stderr: str = ""
    last_error: str = ""

    @property
    def was_rerun(self) -> bool:
        return (self.attempts or 1) > 1

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.job_id,) if self.job_id else ()


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What the tool answered.

    ok: `text` for people, `output` for programs, `artifacts`. error: `message`, `error_class` (the tool says transient,
    timeout, invalid_arguments, not_found, tool_error or configuration; of what it did not say, timeout, bad_output,
    expired, storage_full) and `retryable`: whether another attempt can help, not whether it is allowed. After timeout
    and bad_output a write may have done its work; after storage_full it has; what expired was not started.
    `job`: how it came about, which is not the outcome.
    """

    status: Literal["ok", "error"]
    text: str = ""
    output: Mapping[str, JsonValue] = field(default_factory=dict)
    artifacts: tuple[ProducedArtifact, ...] = ()
    error_class: str | None = None
    message: str | None = None
    retryable: bool = False
    job: JobFacts = field(default=JobFacts(), compare=False)


def failed(error_class: str, message: str, *, retryable: bool) -> ToolOutcome:
    """An outcome of status `error`."""
    return ToolOutcome("error", error_class=error_class, message=message, retryable=retryable)


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """The tool has not run and never will from that start: the call may be run as if for the first time."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The tool was started and nobody saw how it ended: it may have done all, some or none of its work.

    `jobs`: those of a Ductile of which one may be the call's."""

    reason: str
    jobs: tuple[str, ...] = ()


Verdict = ToolOutcome | NeverStarted | Unknown
