"""The classes of errors that are told apart: others may be worded by a tool, which would make a series of each word."""

from schemas.events import ToolResult

NONE = ""
"""No error: Prometheus takes a label without text for one that is not there."""
OTHER = "other"

DENIED = frozenset({"not_allowed"})
TIMED_OUT = frozenset({"timeout", "expired"})
TOOL_ERRORS = frozenset(
    {
        *("artifact_changed", "bad_continuation", "bad_output", "budget", "configuration", "dependency", "in_doubt"),
        *(
            "invalid_arguments",
            "invalid_result",
            "not_approved",
            "not_found",
            "overruled",
            "rate_limit",
            "storage_full",
        ),
        *("storage_full", "tool_error", "transient", "unavailable"),
    }
) | (DENIED | TIMED_OUT)


def tool_error(result: ToolResult) -> str:
    if result.status == "ok":
        return NONE
    return known_class(result.error.error_class if result.error else "tool_error")


def known_class(error_class: str) -> str:
    return error_class if error_class in TOOL_ERRORS else OTHER


def outcome_of(error: str) -> str:
    """`ok`, `error`, `timeout` or `denied`, by the class of the error."""
    if error == NONE:
        return "ok"
    return "denied" if error in DENIED else "timeout" if error in TIMED_OUT else "error"
