"""What a caller may ask in the query of a call that has no list of its own: a misspelt word would be passed over."""

from collections.abc import Callable

from fastapi import Request

from agent_service.api.requests import unfit


def only(*names: str) -> Callable[[Request], None]:
    """A dependency that refuses (422) any other parameter, before anything is done."""

    def refuse_others(request: Request) -> None:
        if others := [name for name in request.query_params if name not in names]:
            raise unfit([((name,), "Extra inputs are not permitted", "extra_forbidden") for name in others])

    return refuse_others
