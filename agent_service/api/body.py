"""Reads query parameters, bodies and the header Idempotency-Key, within limits and after the caller is known.

FastAPI would parse a declared body before it asks who calls, so bodies are dependencies here. Only JSON in plain UTF-8
is read, which also keeps out the forms that a browser would post for another site. Nothing is decompressed.

Idempotency-Key (draft-ietf-httpapi-idempotency-key-header): a quoted string, also taken without its quotes. It becomes
the `wake_id` or `signal_id`, as long as the run is known. Where the API has tokens, a key is its caller's own.
"""

import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request
from pydantic import BaseModel, ValidationError

from agent_service.api import requests
from agent_service.api.access import Payer
from agent_service.api.refusals import REFUSED, Refusal, refusal_of
from agent_service.api.requests import unfit
from agent_service.run.children.waking import WAKE_PREFIX
from agent_service.run.intake import id_of
from groundwork.http.bodies import Bodies, BodyRefused, network_of


def only(*names: str) -> Callable[[Request], None]:
    """A dependency that refuses (422) any other parameter, before anything is done."""

    def refuse_others(request: Request) -> None:
        if others := [name for name in request.query_params if name not in names]:
            raise unfit([((name,), "Extra inputs are not permitted", "extra_forbidden") for name in others])

    return refuse_others


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


HEADER = "Idempotency-Key"
LONGEST = 255
TAKEN = frozenset({"signal_id_taken", "wake_id_taken"})


_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])+)"')
_PLAIN = re.compile(r"[!#-\[\]-~]+")


def idempotency_key(
    payer: Payer,
    sent: Annotated[
        str | None,
        Header(
            alias=HEADER,
            description="The same key with the same body is the same request, however often it is sent; with another "
            "body it is refused. It counts where the body names itself by no `wake_id` or `signal_id`.",
            examples=['"8e03978e-40d5-43dd-bc93-6894a57f9324"'],
        ),
    ] = None,
) -> str | None:
    """The key as an id; None where none was sent. Refuses (422) what can be no key."""
    if sent is None:
        return None
    quoted = _QUOTED.fullmatch(sent)
    if len(sent) > LONGEST or not (quoted or _PLAIN.fullmatch(sent)):
        message = f'{HEADER}: must be a quoted string of visible ASCII, of {LONGEST} characters at most, such as "a-1"'
        raise Refusal(422, "invalid", message, field=HEADER)
    key = quoted[1] if quoted else sent
    return id_of(f"{HEADER} {payer} {key}") if payer or key.startswith(WAKE_PREFIX) else id_of(key)


Key = Annotated[str | None, Depends(idempotency_key)]


@contextmanager
def named_by(key: str | None) -> Iterator[None]:
    """A refusal because a name is taken names the header, where the name came from `key`."""
    try:
        yield
    except REFUSED as error:
        refusal = refusal_of(error)
        if key is None or refusal.code not in TAKEN:
            raise
        message = f"{HEADER}: another request was made under this key: use a new one for a new request"
        raise Refusal(422, "idempotency_key_reused", message, field=HEADER, run_id=refusal.run_id) from error


def named(request: M, **given: str | None) -> M:
    names = {field: name for field, name in given.items() if name and getattr(request, field) is None}
    return request.model_copy(update=names) if names else request
