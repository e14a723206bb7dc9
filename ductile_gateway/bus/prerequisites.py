"""What has to exist on the NATS server before the gateway can work. It creates nothing itself."""

from ductile_gateway.calls.results import MAX_RESULT_BYTES
from groundwork.nats.lease import Role
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import (
    ConsumerSpec,
    StreamSpec,
    Topology,
    check_topology,
    key_value_bucket,
    object_bucket,
)
from groundwork.service.errors import Misconfigured
from schemas import subjects
from schemas.values import replace

ROLE = Role(bucket=subjects.LEASE_BUCKET, key=subjects.LEASE_GATEWAY, command="ductile-gateway serve")
NEEDED = Topology(
    streams=(
        *(StreamSpec(name, {}) for name in subjects.STREAMS if name != subjects.STREAM_PROGRESS),
        StreamSpec(object_bucket(subjects.ARTIFACT_BUCKET, {}).name, {}),
        StreamSpec(key_value_bucket(subjects.LEASE_BUCKET, {}).name, {}),
    ),
    consumers=(ConsumerSpec(subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS, {}),),
)


SHARED = replace(NEEDED, streams=(*NEEDED.streams, StreamSpec(subjects.STREAM_LEDGER, {})))


async def require(link: NatsLink, *, shared: bool = False) -> None:
    """Raises Misconfigured when something is missing, and TryAgain or Broken when the server cannot tell."""
    if link.max_payload < MAX_RESULT_BYTES:
        raise Misconfigured(
            f"the NATS server takes messages of up to {link.max_payload} bytes, and a result may have "
            f"{MAX_RESULT_BYTES}: raise its max_payload"
        )
    findings = await check_topology(link, SHARED if shared else NEEDED)
    if missing := [finding.what for finding in findings if finding.kind == "missing"]:
        raise Misconfigured(f"the NATS server has no {', no '.join(missing)}: run `agentic setup`, which creates them")
