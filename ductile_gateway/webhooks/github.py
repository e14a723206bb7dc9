"""Which type of event a body of GitHub holds: the header `X-GitHub-Event` is not signed, the body is. Pure."""

from pydantic import JsonValue

_FIELDS = {
    "issue_comment": {"issue", "comment"},
    "issues": {"issue"},
    "pull_request_review_comment": {"pull_request", "comment"},
    "pull_request_review_thread": {"pull_request", "thread"},
    "pull_request_review": {"pull_request", "review"},
    "pull_request": {"pull_request"},
    "discussion_comment": {"discussion", "comment"},
    "discussion": {"discussion"},
    "commit_comment": {"comment"},
    "deployment_status": {"deployment", "deployment_status"},
    "workflow_job": {"workflow_job"},
    "deployment": {"deployment"},
    "workflow_run": {"workflow_run"},
    "workflow_dispatch": {"workflow", "inputs"},
    "check_run": {"check_run"},
    "check_suite": {"check_suite"},
    "create": {"ref", "ref_type", "master_branch"},
    "delete": {"ref", "ref_type"},
    "push": {"ref", "commits"},
    "release": {"release"},
    "milestone": {"milestone"},
    "label": {"label"},
    "fork": {"forkee"},
    "member": {"member"},
    "package": {"package"},
    "repository_dispatch": {"branch", "client_payload"},
    "status": {"sha", "state", "context"},
    "ping": {"zen"},
}
"""The fields at the top of a body, by its type (GitHub, "Webhook events and payloads"); the first that fits counts."""


def agrees(event_type: str, body: JsonValue) -> bool:
    """Returns whether a body can be of this type. An unknown type agrees if the body fits no known one."""
    fields = body.keys() if isinstance(body, dict) else set[str]()
    found = next((known for known, marks in _FIELDS.items() if marks <= fields), None)
    return found == event_type if found or event_type in _FIELDS else True
