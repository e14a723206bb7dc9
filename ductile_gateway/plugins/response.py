"""The verdict on a plugin process that has ended: its response (Ductile plugin protocol v2), or the reason for none.

The response is one JSON document on stdout, `{status: ok|error, result, error, retry, …}`, and beyond the protocol
`output`, `artifacts`, `error_class` and `continuation`, which may come with `ok`, since a Ductile takes no other
status. The exit code is ignored if there is a valid response, except that 78 means: never retry.
"""

import base64
import json
import re
import signal
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from ductile_gateway.calls.artifacts import STDERR_BYTES, tail
from ductile_gateway.calls.call import JobFacts, NeverStarted, ProducedArtifact, ToolOutcome, Unknown, Verdict, failed
from ductile_gateway.plugins.box.order import ProcessLimits
from ductile_gateway.settings import keys_in, texts_in
from groundwork.service.secret import masked, spellings
from schemas.continuation import ContinuationInvalid, parse_continuation
from schemas.fields import not_blank, plain_rule
from schemas.values import dataclass, replace

T = TypeVar("T")

STDERR_READ = 64 * 1024
NEVER_RETRY = 78
CANNOT_START = (126, 127)
"""Exit codes of a shell that cannot find or run a program. A script may end with them half-way, too."""

ERROR_CLASSES = ("transient", "timeout", "invalid_arguments", "not_found", "tool_error", "configuration")
MAX_MESSAGE = 4000
MAX_QUOTE = 300

EXCEPTION = re.compile(rb"(\w+\.)*\w*(Error|Exception|Exit|Interrupt)\b")
REFUSALS = (b"Permission denied", b"Read-only file system")
OUT_OF_REACH = "what a plugin may reach is said in docs/SECURITY.md, and gateway.plugins.read and .write name more"
USED = {"cpu_s": "processor time", "memory_mb": "memory", "file_mb": "disk", "processes": "processes"}


class PluginSecrets:
    """Texts that a plugin was `given` by its settings: no error quotes any, no answer brings the `keys` among them."""

    def __init__(self, *given: object) -> None:
        self.texts, self.keys = tuple(texts_in(given)), tuple(keys_in(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRemains:
    """The record of a call whose process is gone. `found`: its contents. `same_boot`: the machine has not restarted
    since."""

    found: Mapping[str, bytes]
    same_boot: bool = True
    overdue: bool = False
    secrets: PluginSecrets = PluginSecrets()
    output_bytes: int = ProcessLimits().output_bytes

    def shown(self, content: bytes) -> str:
        return masked(content.decode(errors="replace"), self.secrets.texts)

    @property
    def stderr(self) -> bytes:
        return self.found.get("stderr", b"")[-STDERR_READ:]


def _finite(output: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
    try:
        json.dumps(output, allow_nan=False)
    except ValueError:
        raise ValueError("must not contain NaN or an infinite number") from None
    return output


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, defer_build=True)


class _Artifact(_Part):
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]
    content_type: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9.+_-]+/[A-Za-z0-9.+_-]+(; ?charset=[A-Za-z0-9-]+)?$")
    ]
    text: str | None = None
    base64: str | None = None

    def produced(self) -> ProducedArtifact:
        """Raises ValueError unless there is exactly one content."""
        if (self.text is None) == (self.base64 is None):
            raise ValueError(f"artifact {self.name}: give either text or base64")
        try:
            content = base64.b64decode(self.base64, validate=True) if self.base64 else (self.text or "").encode()
        except ValueError:
            raise ValueError(f"artifact {self.name}: its base64 does not decode") from None
        return ProducedArtifact(self.name, self.content_type, content)


class _Result(_Part):
    """`result` is the markdown form where a continuation has no `continuation`."""

    status: Literal["ok", "continuation"]
    result: str = ""
    output: Annotated[dict[str, JsonValue] | None, AfterValidator(_finite)] = None
    artifacts: list[_Artifact] | None = None
    continuation: JsonValue = None

    def outcome(self) -> ToolOutcome:
        """Raises ValueError, and ContinuationInvalid for a continuation."""
        if self.status == "ok" and not self.result.strip():
            raise ValueError("result: must not be blank")
        produced = tuple(artifact.produced() for artifact in self.artifacts or ())
        if len({artifact.name for artifact in produced}) < len(produced):
            raise ValueError("two artifacts have the same name")
        outcome = ToolOutcome(self.status, text=self.result, output=self.output or {}, artifacts=produced)
        if self.continuation is None:
            return outcome
        return replace(outcome, status="continuation", continuation=parse_continuation(self.continuation))


class _Error(_Part):
    status: Literal["error"]
    error: Annotated[str, AfterValidator(not_blank)]
    retry: bool | None = None
    error_class: JsonValue = None

    def outcome(self) -> ToolOutcome:
        error_class = self.error_class if self.error_class in ERROR_CLASSES else "tool_error"
        return failed(str(error_class), self.error, retryable=self.retry is not False)


_RESPONSE: TypeAdapter[_Result | _Error] = TypeAdapter(
    Annotated[_Result | _Error, Field(discriminator="status")], config=ConfigDict(defer_build=True)
)


def outcome_of(response: Mapping[str, JsonValue]) -> ToolOutcome:
    """Outcome of a response that a Ductile has read from a process of its own."""
    outcome = _read(_RESPONSE.validate_python, response)
    if isinstance(outcome, ToolOutcome):
        return outcome
    return failed("bad_output", f"the plugin wrote no valid response: {outcome}", retryable=False)


def judge(remains: CallRemains) -> Verdict:
    exit_code, ended_at = _timed(remains.found.get("exit"))
    if unbegun := remains.found.get("unbegun", b"").replace(b"\n", b" "):
        text = f"the plugin could not be started, and has done nothing: {unbegun.decode(errors='replace')}"
        verdict: Verdict = failed("transient", text + _hint(remains.stderr + unbegun), retryable=True)
    else:
        verdict = _judged(remains, exit_code)
    if not isinstance(verdict, ToolOutcome):
        return verdict
    _, began_at = _timed(remains.found.get("began"))
    stderr = tail(remains.shown(remains.stderr), STDERR_BYTES)
    job = JobFacts(exit_code=exit_code, began_at=began_at, ended_at=ended_at, stderr=stderr)
    return replace(verdict, message=verdict.message and quoted(verdict.message, remains.secrets.texts), job=job)


def _timed(content: bytes | None) -> tuple[int | None, datetime | None]:
    if content is None:
        return None, None
    number, at = content.split()
    return int(number), datetime.fromtimestamp(float(at), UTC)


def quoted(message: str, secrets: Iterable[str]) -> str:
    """Masks before it cuts, because a part of a secret is not found."""
    return masked(message, secrets)[:MAX_MESSAGE]


def _judged(remains: CallRemains, exit_code: int | None) -> Verdict:
    found = remains.found
    stopped, is_complete = found.get("stopped", b"").decode(), remains.same_boot and "request" in found
    if stopped == "output":
        stream = "output" if len(found.get("stdout", b"")) >= remains.output_bytes else "error"
        most = f"{remains.output_bytes:,} bytes (gateway.plugins.limits.output_mb), and was stopped"
        return failed("bad_output", f"the plugin wrote more to standard {stream} than {most}", retryable=True)
    if stopped in USED:
        limit = f"gateway.plugins.limits.{stopped}"
        used = f"the plugin used more {USED[stopped]} than {limit} allows, and was stopped"
        return failed("bad_output", f"{used}{_quote(remains)}", retryable=False)
    is_overdue = stopped == "overdue" or remains.overdue
    if exit_code is not None:
        answered = _answered(remains, exit_code)
        if isinstance(answered, ToolOutcome):
            return answered
        if not is_overdue and is_complete:
            return _unanswered(remains, exit_code, answered)
    if is_overdue:
        return failed("timeout", "the plugin did not answer before its deadline and was stopped", retryable=True)
    if "began" not in found and is_complete:
        return NeverStarted()
    return Unknown("the plugin was started, and it is not known whether and how it ended")


def _answered(remains: CallRemains, exit_code: int) -> ToolOutcome | str:
    stdout = _without_keys(remains.found.get("stdout", b"").lstrip(), remains.secrets.keys)
    if not stdout:
        return "wrote no response"
    outcome = _read(_RESPONSE.validate_json, stdout)
    if isinstance(outcome, str):
        began = "" if stdout.startswith(b"{") else f"; it begins: {_shown(stdout.splitlines()[0], remains)}"
        return f"wrote no valid response: {outcome}{began}"
    if outcome.status == "error" and exit_code == NEVER_RETRY:
        return replace(outcome, error_class="configuration", retryable=False)
    return outcome


def _without_keys(stdout: bytes, keys: tuple[str, ...]) -> bytes:
    if not keys:
        return stdout
    text = masked(stdout.decode(errors="surrogateescape"), keys)
    return spellings(keys, in_json=True).sub("***", text).encode(errors="surrogateescape")


def _read(parse: Callable[[T], _Result | _Error], response: T) -> ToolOutcome | str:
    try:
        return parse(response).outcome()
    except ValidationError as error:
        return "; ".join(_complaints(error))
    except ContinuationInvalid as flaws:
        return failed("bad_output", f"the plugin asks for what cannot be done: {flaws}", retryable=False)
    except (ValueError, RecursionError) as error:
        return str(error)


def _complaints(error: ValidationError) -> Iterable[str]:
    # Without the input: the content of a response is not for messages.
    for detail in error.errors(include_url=False, include_input=False, include_context=False)[:3]:
        place = ".".join(map(str, detail["loc"][1:]))[:MAX_QUOTE]  # the first part is the status
        rule = plain_rule(detail["msg"])
        yield f"{place}: {rule}" if place else rule


def _unanswered(remains: CallRemains, exit_code: int, complaint: str) -> ToolOutcome:
    ended, crashes = f"exit code {exit_code}", [line for line in remains.stderr.splitlines() if EXCEPTION.match(line)]
    if exit_code > 128 and exit_code - 128 in set(signal.Signals):
        ended = f"ended by {signal.Signals(exit_code - 128).name}"
    message = f"the plugin {complaint} ({ended})"
    message = f"{_shown(crashes[-1], remains)}: {message}" if crashes else f"{message}{_quote(remains)}"
    message += _hint(remains.stderr)
    if exit_code == NEVER_RETRY:
        return failed("configuration", message, retryable=False)
    return failed("bad_output", message, retryable=exit_code not in CANNOT_START)


def _hint(output: bytes) -> str:
    return f" ({OUT_OF_REACH})" if any(sign in output for sign in REFUSALS) else ""


def _quote(remains: CallRemains) -> str:
    lines = remains.stderr.strip().splitlines()
    return f"; its last words: {_shown(lines[-1], remains)}" if lines else ""


def _shown(line: bytes, remains: CallRemains) -> str:
    return "".join(one if one.isprintable() else "\ufffd" for one in remains.shown(line)[:MAX_QUOTE])
