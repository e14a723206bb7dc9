"""What a token may do, in the words of each version of Ductile. Scopes are exact strings: unknown ones give nothing."""

from collections.abc import Iterable, Mapping

from tests.ductile.fake.wire import Refused, Request

_INVOKE = {"detail", "invoke"}
_JOBS = {"status", "result", "tree", "logs"}
_ALL = {"catalog", *_INVOKE, "write", *_JOBS, "follow", "view"}

GRANTS: Mapping[str, Mapping[str, set[str]]] = {
    "M": {
        "*": _ALL,
        "plugin:ro": _INVOKE,
        "plugin:rw": _INVOKE | {"write"},
        "jobs:ro": _JOBS,
        "jobs:rw": _JOBS,
        "events:ro": {"follow"},
        "events:rw": {"follow"},
        "system:ro": {"view"},
        "system:rw": {"view"},
    },
    "N": {
        "*": _ALL,
        "plugin:ro": {"catalog", "detail"},
        "plugin:catalog:ro": {"catalog", "detail"},
        "plugin:invoke:ro": {"invoke"},
        "plugin:rw": {"catalog", *_INVOKE, "write"},
        "jobs:status:ro": {"status"},
        "jobs:result:ro": {"result"},
        "jobs:tree:ro": {"tree"},
        "jobs:logs:ro": {"logs"},
        "jobs:ro": _JOBS,
        "jobs:rw": _JOBS,
        "events:meta:ro": {"follow"},
        "events:ro": {"follow"},
        "events:rw": {"follow"},
        "system:ro": {"view"},
        "system:rw": {"view"},
    },
}
"""M lets every valid token list plugins and skills; N has scopes of its own for the list, for calls and for results."""


def granted(version: str, scopes: Iterable[str]) -> set[str]:
    """What these scopes allow together."""
    always = {"catalog"} if version == "M" else set()
    return always.union(*(GRANTS[version].get(scope, set()) for scope in scopes))


def presented_token(request: Request) -> str:
    """The bearer token of a request. Raises Refused with 401."""
    header = request.headers.get("authorization", "")
    if header and not header.startswith("Bearer "):
        raise Refused(401, "invalid Authorization header format")
    token = header.removeprefix("Bearer ").strip()
    if not token:
        raise Refused(401, "missing or invalid Authorization header")
    return token
