"""Bodies of requests: read within limits, and only once the caller is known.

FastAPI would read and parse a declared body before it asks who is calling, so bodies are dependencies here. What is no
JSON in plain UTF-8 is refused by its media type before a byte of it is read, which also keeps out the forms that a
browser would post for another site. Nothing is decompressed.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from agent_service.api import requests
from agent_service.api.refusals import Refusal
from groundwork.http.bodies import Bodies, BodyRefused
from groundwork.http.incoming import network_of

JSON = "application/json"

M = TypeVar("M", bound=BaseModel)


def body_of(model: type[M]) -> Callable[[Request], Coroutine[Any, Any, M]]:
    """A dependency that gives the body as `model`. Refuses with 400, 408, 413, 415 and 422."""

    async def body(request: Request) -> M:
        _check_headers(request)
        bodies: Bodies = request.app.state.bodies
        try:
            sent = await bodies.read(request, whose=request.state.token or network_of(request.scope["client"]))
        except BodyRefused as error:
            raise Refusal(error.status, error.code, str(error)) from error
        return requests.read(model, sent)

    return body


def documented(model: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": not _may_be_empty(model), "content": {JSON: {"schema": schema}}}}


def _may_be_empty(model: type[BaseModel]) -> bool:
    try:
        model()
    except ValidationError:
        return False
    return True


def _check_headers(request: Request) -> None:
    headers = request.headers
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "encoded", "send the body as it is, without Content-Encoding")
    length = headers.get("content-length", "")
    kinds = headers.getlist("content-type")
    has_body = length not in ("", "0") or "transfer-encoding" in headers
    if (kinds or has_body) and [kind.partition(";")[0].strip().lower() for kind in kinds] != [JSON]:
        raise Refusal(415, "not_json", f"send JSON, with `Content-Type: {JSON}`")
