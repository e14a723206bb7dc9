#!/usr/bin/env python3
"""Looks at a Ductile's own jobs and at how it is, over its API (Ductile plugin protocol v2). Standard library only.

It only reads. The token goes to one address, by TLS or on this machine, and is never told.
"""

import json
import sys
import urllib.error
import urllib.request
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

DEFAULT_SECRET = "ductile-look-token"  # noqa: S105 - the name of a secret, not the secret
WITHIN_S = 10.0
MOST_BYTES, MOST_SHOWN, LONGEST_TEXT = 64 * 1024 * 1024, 11_000, 2_000
OF_SYSTEM = ("/healthz", "/system/doctor", "/topology")
"""The last two are told by newer versions alone."""


class Failure(Exception):
    """`retry`: whether trying again can help."""

    def __init__(self, error_class: str, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retry = retry


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Another address would be handed the token."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The response to a request. Raises Failure."""
    payload = request.get("payload") or {}
    match request["command"]:
        case "job":
            found = _log(request, job_id=payload.get("job_id"))
            if not found:
                told = f"Ductile's log has no job {payload.get('job_id')}: it has not ended, or is older than a month"
                raise Failure("not_found", told)
        case "jobs":
            asked = {name: payload[name] for name in ("plugin", "status") if payload.get(name)}
            found = _log(request, results=False, limit=payload.get("limit", 10), **asked)
        case "system":
            found = [{path: _looked(request, path)} for path in OF_SYSTEM]
        case "health":
            return {"status": "ok", "result": "ductile-look can be run"}
        case other:
            raise Failure("invalid_arguments", f"there is no command {other}")
    told = json.dumps(found, ensure_ascii=False, indent=1)
    shown = told if len(told) <= MOST_SHOWN else f"{told[:MOST_SHOWN]}\n[cut: {len(told)} characters]"
    return {"status": "ok", "result": shown, "output": {"found": len(found)}}


def _log(request: dict[str, Any], *, results: bool = True, **wanted: object) -> list[Any]:
    """Of jobs that have ended. One whose result is no JSON leaves the answer empty."""
    asked = wanted | ({"include_result": "true"} if results else {})
    found = _looked(request, f"/job-logs?{urlencode(asked)}", required=True)
    if found is None and results:
        return _log(request, results=False, **wanted)
    logs = found.get("logs") if isinstance(found, dict) else None
    return [_short(entry) for entry in logs if isinstance(entry, dict)] if isinstance(logs, list) else []


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    """An error may be as long as its plugin likes, and must not hide the other fields."""
    return {
        name: f"{value[:LONGEST_TEXT]}… [cut: {len(value)} characters]"
        if isinstance(value, str) and len(value) > LONGEST_TEXT
        else value
        for name, value in entry.items()
    }


def _looked(request: dict[str, Any], path: str, *, required: bool = False) -> Any:
    """What Ductile answers; None where that is empty. Raises Failure."""
    config = request.get("config") or {}
    url, token = _address(config.get("url")), _token(request, config)
    asking = urllib.request.Request(url + path)  # noqa: S310 - an address of the settings
    asking.add_header("Authorization", f"Bearer {token}")
    way = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stays)
    try:
        with way.open(asking, timeout=WITHIN_S) as told:
            content = told.read(MOST_BYTES)
            if len(content) == MOST_BYTES:
                raise Failure("tool_error", "Ductile's answer has 64 MiB or more: ask for fewer jobs")
            return json.loads(content) if content else None
    except urllib.error.HTTPError as error:
        if not required:
            return f"not told ({error.code})"
        advice = {401: ": it does not know the token", 403: ": the token needs the scope jobs:ro"}.get(error.code, "")
        raise Failure("configuration", f"Ductile answered {error.code}{advice}", retry=error.code >= 500) from None
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        raise Failure("transient", f"Ductile could not be asked ({type(error).__name__})", retry=True) from None


def _address(url: object) -> str:
    parts = urlsplit(url if isinstance(url, str) else "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Failure("configuration", "url must be that of Ductile's API, such as http://127.0.0.1:8080")
    if parts.scheme == "http" and not _is_here(parts.hostname):
        raise Failure("configuration", f"the token would go to {parts.hostname} without TLS: use https")
    return str(url).rstrip("/")


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _token(request: dict[str, Any], config: dict[str, Any]) -> str:
    file = config.get("token_file")
    try:
        token = Path(file).read_text(encoding="ascii") if file else None
    except (OSError, ValueError):
        raise Failure("configuration", "token_file cannot be read as text") from None
    return str(token or (request.get("secrets") or {}).get(config.get("secret", DEFAULT_SECRET), "")).strip()


def main() -> None:
    try:
        response = answer(json.load(sys.stdin.buffer))
    except Failure as failure:
        told = {"error": str(failure), "error_class": failure.error_class, "retry": failure.retry}
        response = {"status": "error"} | told
    json.dump(response, sys.stdout)


if __name__ == "__main__":
    main()
