"""The topology that the gateway requires on NATS, and the ownership of calls after a crash, a move or a restore."""

from datetime import UTC, datetime, timedelta

from ulid import ULID

from ductile_gateway.calls.call import ALONE, CallRequest, ToolCall
from ductile_gateway.calls.results import MAX_RESULT_BYTES
from ductile_gateway.store.opening import BACKUP, Mark
from ductile_gateway.store.rows import Rows
from groundwork.nats.buckets import replace_value
from groundwork.nats.lease import Lease, LeaseRecord, Role, read_lease
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import Spec, check_topology, key_value_bucket, object_bucket
from groundwork.service.errors import Misconfigured, TryAgain
from groundwork.service.machine import monotonic
from groundwork.sqlite.file import microseconds
from schemas import subjects
from schemas.values import dataclass

ROLE = Role(bucket=subjects.LEASE_BUCKET, key=subjects.LEASE_GATEWAY, command="ductile-gateway serve")
NEEDED = (
    *(Spec(name, {}) for name in subjects.STREAMS if name != subjects.STREAM_PROGRESS),
    Spec(object_bucket(subjects.ARTIFACT_BUCKET, {}).stream, {}),
    Spec(key_value_bucket(subjects.LEASE_BUCKET, {}).stream, {}),
    Spec(subjects.STREAM_REQUESTS, {}, consumer=subjects.DURABLE_TOOLS),
)


async def require_topology(link: NatsLink, *, shared: bool = False) -> None:
    """Raises Misconfigured when something is missing, and TryAgain or Broken when the server cannot tell."""
    if link.max_payload < MAX_RESULT_BYTES:
        raise Misconfigured(
            f"the NATS server takes messages of up to {link.max_payload} bytes, and a result may have "
            f"{MAX_RESULT_BYTES}: raise its max_payload"
        )
    findings = await check_topology(link, (*NEEDED, Spec(subjects.STREAM_LEDGER, {})) if shared else NEEDED)
    if missing := [finding.what for finding in findings if finding.kind == "missing"]:
        raise Misconfigured(f"the NATS server has no {', no '.join(missing)}: run `agentic setup`, which creates them")


COME_BACK_S = 1.0
BACK_WITHIN_S = 15.0
"""A gateway that is gone is restarted within this time, or not at all."""
OTHERS_WITHIN_S = 15.0
"""Time for another gateway to take a call of a tool that this one does not have, as while a tool is rolled out."""

_ASKED_BEFORE = """
SELECT 1 FROM rows
WHERE kind = 'call' AND state = 'answered' AND at > ? AND run_id = ?
    AND json_extract(head, '$.digest') = ? AND json_extract(head, '$.step') < ? AND instr(body, CAST(? AS BLOB)) > 0
LIMIT 1
"""
_IN_DOUBT = '"in_doubt"'


@dataclass(eq=False)
class BusOwnership:
    """Says which calls this gateway may make. `mark`: of rows that were restored from a backup: new writes of older
    runs are in doubt, once for each. `predecessor`: lease of an owner with another store, by the server's clock.
    `link`: of one of several gateways."""

    lease: Lease
    rows: Rows
    mark: Mark = Mark()
    predecessor: LeaseRecord | None = None
    link: NatsLink | None = None

    def __post_init__(self) -> None:
        before = self.predecessor
        self._until = before.renewed_at + timedelta(seconds=before.owner.ttl_s) if before else None
        self._ours: set[str] = set()
        self._inherited: set[str] = set()
        self._missed_since: dict[str, float] = {}
        self._left_since: dict[str, float] = {}
        self._restored = f"the backup of {self.mark.taken:%Y-%m-%d %H:%M} UTC" if self.mark.backup else ""

    def note_delivery(self, key: str, delivered: int, at: datetime) -> None:
        """The request, stored `at`, was delivered for the `delivered`-th time."""
        if self._until is None or at > self._until:
            return
        if delivered == 1:
            self._ours.add(key)
        elif key not in self._ours:
            self._inherited.add(key)

    def doubt(self, asked: CallRequest) -> str:
        """The reason why another gateway may have begun the call, or this one before a restore; empty if none."""
        if self._restored and self._may_be_forgotten(asked):
            return f"its run was restored from {self._restored}, and may have done this after that, before it was lost"
        if asked.key not in self._inherited:
            return ""
        return f"the gateway that had this bus before may have begun it ({self.predecessor and self.predecessor.owner})"

    def leave_to_others(self, asked: CallRequest) -> None:
        """Raises TryAgain for a while: one of several gateways may have the tool of this call."""
        if self.link is None:
            return
        now = monotonic()
        self._left_since = {key: at for key, at in self._left_since.items() if now - at < 2 * OTHERS_WITHIN_S}
        if now - self._left_since.setdefault(asked.key, now) < OTHERS_WITHIN_S:
            raise TryAgain("another gateway may have the tool", COME_BACK_S)

    async def lost(self, call: ToolCall, by: str, *, anywhere: bool) -> str:
        """The reason why the gateway `by`, which began the call, is gone; empty if this one began it. Raises TryAgain
        while the other lives, and unless the call can be resumed `anywhere`, while the other may come back."""
        why = ""
        if self.link and by not in (self.rows.by, ALONE):
            if not await has_left(self.link, by, self.lease):
                self._missed_since.pop(by, None)
                raise TryAgain(f"another gateway carries it out ({by})", COME_BACK_S)
            since = self._missed_since.setdefault(by, monotonic())
            if not anywhere and not by.startswith(BACKUP) and monotonic() - since < BACK_WITHIN_S:
                raise TryAgain(f"the gateway that began it is gone, and may be back soon ({by})", COME_BACK_S)
            why = f"the gateway that began it is gone ({by})"
        if self._restored and call.asked.request.requested_at <= self.mark.at:  # its record on the machine is lost
            return f"it was under way in {self._restored}, which was restored"
        return why

    def _may_be_forgotten(self, asked: CallRequest) -> bool:
        """True if a new call may have been made between backup and restore."""
        request, at = asked.request, self.mark.at
        same = microseconds(at), request.run_id, asked.digest, request.step, _IN_DOUBT
        return not (self.mark.moved or _begun_at(request.run_id) > at or self.rows.look_up(_ASKED_BEFORE, same))


def _begun_at(run_id: str) -> datetime:
    try:
        return ULID.from_str(run_id.removeprefix("run_")).datetime
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


async def has_left(link: NatsLink, gateway: str, ours: Lease) -> bool:
    """True if the gateway has released its lease, or the lease has expired and is taken from it. Raises TryAgain."""
    role = ROLE.member(gateway)
    record = await read_lease(link, role)
    if record is None or record.owner.released:
        return True
    if not ours.may_follow(record) or ours.kept_s < record.owner.ttl_s:
        return False
    ended = record.owner.model_copy(update={"epoch": record.owner.epoch + 1, "released": True}).model_dump_json()
    return await replace_value(link, role.bucket, role.key, ended.encode(), after=record.seq) is not None
