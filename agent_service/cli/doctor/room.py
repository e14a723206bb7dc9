"""How full the streams are, and the bucket of artifacts: those that refuse what is beyond their bound."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from nats.js.api import DiscardPolicy, StreamInfo

from agent_service.bus.topology import topology
from agent_service.telling.findings import ok, warning
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import found_stream
from groundwork.service.errors import Failure
from schemas.gateway_status import Finding

FULL = 0.8
ANSWER_WITHIN_S = 2.0
NOTHING: Mapping[str, float] = MappingProxyType({})
REMEDY = "`agentic setup --max-gib N --change` with a larger N, or keep less"


async def room(link: NatsLink, *, shared: bool) -> Finding:
    try:
        found = [await found_stream(link, spec) for spec in topology(shared=shared).all_streams()]
        account = await _account(link)
    except Failure as error:
        return warning("room", str(error), remedy="give this login the permission, or ask again later")
    return judged([info for info in found if info], account)


async def _account(link: NatsLink) -> Mapping[str, float]:
    """How much of what the account may store it does; nothing where it has no bound."""
    told = json.loads(await link.request("$JS.API.INFO", b"", timeout_s=ANSWER_WITHIN_S))
    most = told.get("limits", {}).get("max_storage", -1)
    return {"what this account may store": told.get("storage", 0) / most} if most > 0 else {}


def judged(streams: Sequence[StreamInfo], beside: Mapping[str, float] = NOTHING) -> Finding:
    """`beside`: what else refuses, and how full it is. Where the oldest gives way, a full stream is as it should be."""
    refusing = {str(info.config.name): _share(info) for info in streams if info.config.discard == DiscardPolicy.NEW}
    refusing.update(beside)
    full = [f"{name} is {share:.0%} full" for name, share in refusing.items() if share >= FULL]
    if full:
        return warning("room", f"{', '.join(full)}, and refuses what is beyond", remedy=REMEDY)
    return ok("room", f"the fullest that refuses more is {max(refusing.values(), default=0.0):.0%} full")


def _share(info: StreamInfo) -> float:
    most = info.config.max_bytes or 0
    return info.state.bytes / most if most > 0 else 0.0
