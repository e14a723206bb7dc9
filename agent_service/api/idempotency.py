"""The header Idempotency-Key: a request that is sent again under it is done once.

After draft-ietf-httpapi-idempotency-key-header: a key is a quoted string, which is taken without its quotes too. It
becomes the name that the body may have given itself (`wake_id`, `signal_id`), so it holds as long as the run is known,
and no window of time closes on it. Another request under the same key is refused with 422. Where the API has tokens, a
key is its caller's own: what others sent under it, or named so, is another request.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeVar

from fastapi import Depends, Header
from pydantic import BaseModel

from agent_service.api.access import Payer
from agent_service.api.refusals import REFUSED, Refusal, refusal_of
from agent_service.core.children import WAKE_PREFIX
from agent_service.intake import id_of

HEADER = "Idempotency-Key"
LONGEST = 255
TAKEN = frozenset({"signal_id_taken", "wake_id_taken"})

M = TypeVar("M", bound=BaseModel)

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
    """What is refused in here because its name is taken is told as what it is to whoever named it by `key`."""
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
