#!/usr/bin/env python3
"""Reads the jobs and the state of a Ductile over its API (Ductile plugin protocol v2). Standard library only.

It only reads. The token goes to one address, by TLS or on this machine, and is never repeated.
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
TIMEOUT_S = 10.0
MOST_BYTES, MOST_CHARS, LONGEST_TEXT = 64 * 1024 * 1024, 11_000, 2_000
SYSTEM_PATHS = ("/healthz", "/system/doctor", "/topology")
"""Only newer versions answer the last two."""


class Failure(Exception):
    """`retry`: a later attempt may succeed."""

    def __init__(self, error_class: str, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retry = retry


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follows none: another address would get the token."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the response to a request. Raises Failure."""
    payload = request.get("payload") or {}
    match request["command"]:
        case "job":
            found = _log(request, job_id=payload.get("job_id"))
            if not found:
                job_id = payload.get("job_id")
                message = f"Ductile's log has no job {job_id}: it has not ended, or is older than a month"
                raise Failure("not_found", message)
        case "jobs":
            filters = {name: payload[name] for name in ("plugin", "status") if payload.get(name)}
            found = _log(request, results=False, limit=payload.get("limit", 10), **filters)
        case "system":
            found = [{path: _get(request, path)} for path in SYSTEM_PATHS]
        case "health":
            return {"status": "ok", "result": "ductile-look can be run"}
        case other:
            raise Failure("invalid_arguments", f"there is no command {other}")
    text = json.dumps(found, ensure_ascii=False, indent=1)
    shown = text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}\n[cut: {len(text)} characters]"
    return {"status": "ok", "result": shown, "output": {"found": len(found)}}


def _log(request: dict[str, Any], *, results: bool = True, **wanted: object) -> list[Any]:
    """Returns ended jobs; without results if one is not JSON, because Ductile's answer is empty then."""
    query = wanted | ({"include_result": "true"} if results else {})
    found = _get(request, f"/job-logs?{urlencode(query)}", required=True)
    if found is None and results:
        return _log(request, results=False, **wanted)
    logs = found.get("logs") if isinstance(found, dict) else None
    return [_short(entry) for entry in logs if isinstance(entry, dict)] if isinstance(logs, list) else []


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    """Cuts long texts: an error of any length must not hide the other fields."""
    return {
        name: f"{value[:LONGEST_TEXT]}… [cut: {len(value)} characters]"
        if isinstance(value, str) and len(value) > LONGEST_TEXT
        else value
        for name, value in entry.items()
    }


def _get(request: dict[str, Any], path: str, *, required: bool = False) -> Any:
    """Returns Ductile's answer, None for an empty one. Raises Failure."""
    config = request.get("config") or {}
    url, token = _address(config.get("url")), _token(request, config)
    http_request = urllib.request.Request(url + path)  # noqa: S310 - an address of the settings
    http_request.add_header("Authorization", f"Bearer {token}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
    try:
        with opener.open(http_request, timeout=TIMEOUT_S) as response:
            content = response.read(MOST_BYTES)
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
        error = {"error": str(failure), "error_class": failure.error_class, "retry": failure.retry}
        response = {"status": "error"} | error
    json.dump(response, sys.stdout)


if __name__ == "__main__":
    main()
