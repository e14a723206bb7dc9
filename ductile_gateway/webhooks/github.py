"""Whether a delivery of GitHub is what its header `X-GitHub-Event` says: the header is not signed, the body is. Pure.

A type is known by the fields at the top of its body (GitHub, "Webhook events and payloads"). Types with the same
fields, such as those of alerts, can pass for each other.
"""

from collections.abc import Collection, Mapping

from pydantic import JsonValue

_ALERT = frozenset({"alert"})
_OF_ACTIONS = frozenset({"workflow", "workflow_run", "check_run"})
_HAS: Mapping[str, frozenset[str]] = {
    "check_run": frozenset({"check_run"}),
    "check_suite": frozenset({"check_suite"}),
    "code_scanning_alert": _ALERT,
    "commit_comment": frozenset({"comment"}),
    "create": frozenset({"ref", "ref_type", "master_branch"}),
    "delete": frozenset({"ref", "ref_type"}),
    "dependabot_alert": _ALERT,
    "deploy_key": frozenset({"key"}),
    "deployment": frozenset({"deployment"}),
    "deployment_status": frozenset({"deployment", "deployment_status"}),
    "discussion": frozenset({"discussion"}),
    "discussion_comment": frozenset({"discussion", "comment"}),
    "fork": frozenset({"forkee"}),
    "gollum": frozenset({"pages"}),
    "issue_comment": frozenset({"issue", "comment"}),
    "issues": frozenset({"issue"}),
    "label": frozenset({"label"}),
    "member": frozenset({"member"}),
    "membership": frozenset({"member", "team"}),
    "merge_group": frozenset({"merge_group"}),
    "milestone": frozenset({"milestone"}),
    "package": frozenset({"package"}),
    "page_build": frozenset({"build"}),
    "ping": frozenset({"zen"}),
    "pull_request": frozenset({"pull_request"}),
    "pull_request_review": frozenset({"pull_request", "review"}),
    "pull_request_review_comment": frozenset({"pull_request", "comment"}),
    "pull_request_review_thread": frozenset({"pull_request", "thread"}),
    "push": frozenset({"ref", "commits"}),
    "release": frozenset({"release"}),
    "repository_dispatch": frozenset({"branch", "client_payload"}),
    "secret_scanning_alert": _ALERT,
    "star": frozenset({"starred_at"}),
    "status": frozenset({"sha", "state", "context"}),
    "team_add": frozenset({"team"}),
    "workflow_dispatch": frozenset({"ref", "inputs", "workflow"}),
    "workflow_job": frozenset({"workflow_job"}),
    "workflow_run": frozenset({"workflow_run"}),
}
_MAY_HAVE: Mapping[str, frozenset[str]] = {
    "code_scanning_alert": frozenset({"ref"}),
    "deployment": _OF_ACTIONS,
    "deployment_status": _OF_ACTIONS,
    "discussion": frozenset({"label"}),
    "issues": frozenset({"label", "milestone"}),
    "pull_request": frozenset({"label", "milestone"}),
    "workflow_job": frozenset({"deployment"}),
    "workflow_run": frozenset({"workflow"}),
}
_MARKS = frozenset().union(*_HAS.values())


def agrees(event_type: str, body: JsonValue) -> bool:
    """Returns whether a body can be of this type. An unknown type agrees if the body fits no known one."""
    fields = body.keys() if isinstance(body, dict) else ()
    if event_type in _HAS:
        return _fits(event_type, fields)
    return not any(_fits(known, fields) for known in _HAS)


def _fits(event_type: str, fields: Collection[str]) -> bool:
    marks = _MARKS.intersection(fields)
    return _HAS[event_type] <= marks <= _HAS[event_type] | _MAY_HAVE.get(event_type, frozenset())
