"""Bodies of requests: read within limits, and only once the caller is known.

FastAPI would read and parse a declared body before it asks who is calling, so bodies are dependencies here. What is no
JSON in plain UTF-8 is refused by its media type before a byte of it is read, which also keeps out the forms that a
browser would post for another site. Nothing is decompressed.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from agent_service.api import requests
from agent_service.api.refusals import Refusal
from agent_service.api.requests import MAX_BODY_BYTES

JSON = "application/json"
READ_WITHIN_S = 15.0
LONGEST_LENGTH = 9
"""Digits of a Content-Length that is worth reading as a number."""

M = TypeVar("M", bound=BaseModel)


def body_of(model: type[M], *, within_s: float = READ_WITHIN_S) -> Callable[[Request], Coroutine[Any, Any, M]]:
    """A dependency that gives the body as `model`. Refuses with 400, 408, 413, 415 and 422."""

    async def body(request: Request) -> M:
        _check_headers(request)
        return requests.read(model, await _read(request, within_s))

    return body


def documented(model: type[BaseModel]) -> dict[str, Any]:
    """The body as OpenAPI describes it, for a route that takes it by `body_of`."""
    schema = model.model_json_schema()
    shown = _inlined(schema, schema.pop("$defs", {}))
    return {"requestBody": {"required": "required" in schema, "content": {JSON: {"schema": shown}}}}


def _inlined(part: Any, definitions: dict[str, Any]) -> Any:
    """`part` of a schema without references: OpenAPI would look for their targets elsewhere."""
    match part:
        case {"$ref": str(reference), **beside}:
            target = definitions[reference.rpartition("/")[2]]
            return _inlined(target, definitions) | _inlined(beside, definitions)
        case dict():
            return {name: _inlined(value, definitions) for name, value in part.items()}
        case list():
            return [_inlined(value, definitions) for value in part]
    return part


async def _read(request: Request, within_s: float) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(within_s):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise requests.too_large()
                chunks.append(chunk)
    except TimeoutError as error:
        raise Refusal(408, "too_slow", f"the body did not arrive within {within_s:g} s") from error
    except ClientDisconnect as error:
        raise Refusal(400, "cut_off", "the connection ended within the body") from error
    return b"".join(chunks)


def _check_headers(request: Request) -> None:
    headers = request.headers
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "encoded", "send the body as it is, without Content-Encoding")
    length = headers.get("content-length", "")
    if length.isdecimal() and (len(length) > LONGEST_LENGTH or int(length) > MAX_BODY_BYTES):
        raise requests.too_large()
    kinds = headers.getlist("content-type")
    has_body = length not in ("", "0") or "transfer-encoding" in headers
    if (kinds or has_body) and [kind.partition(";")[0].strip().lower() for kind in kinds] != [JSON]:
        raise Refusal(415, "not_json", f"send JSON, with `Content-Type: {JSON}`")
