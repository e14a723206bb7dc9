"""`agentic setup`: creates what is missing on the NATS server, moves what earlier versions kept elsewhere, adds what
they did not set, and tells what differs, which it leaves as it is."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from agent_service import settings
from agent_service.bus.moving import set_up as create_all
from agent_service.bus.topology import Executor, reserved_gib, topology
from agent_service.cli import configuration, output
from agent_service.cli.exits import Exit
from agent_service.telling.plain import one_line
from groundwork.nats import link as nats_link
from groundwork.nats.topology import Deviation
from groundwork.service.errors import Misconfigured, NoRoom

CONNECT_WITHIN_S = 5.0


async def set_up(
    config: Path | None,
    *,
    max_gib: float,
    replicas: int,
    executors: Sequence[Executor] = (),
    shared: bool = False,
    as_json: bool,
) -> Exit:
    """FAILED when something exists that differs. Raises Misconfigured, and what the bus raises."""
    loaded = settings.load(configuration.own(config))
    link = await nats_link.connect(loaded.nats, name="agentic-setup", timeout_s=CONNECT_WITHIN_S)
    wanted = topology(max_gib=max_gib, replicas=replicas, executors=executors, shared=shared)
    try:
        findings = await create_all(link, wanted)
    except NoRoom as error:
        needed = f"with --max-gib {max_gib:g} it sets {reserved_gib(max_gib, shared=shared):.1f} GiB aside"
        remedy = "name less, or raise max_file_store of the server or the limits of the account"
        raise Misconfigured(f"the NATS server has no room: {error}; {needed}: {remedy}") from error
    finally:
        await link.close()
    differs = any(finding.kind == "differs" for finding in findings)
    if as_json:
        output.document({"ok": not differs, "findings": [asdict(finding) for finding in findings]})
    else:
        output.draw("\n".join(map(_line, findings)) or "everything is there already", wrap=False)
    return Exit.FAILED if differs else Exit.OK


def _line(finding: Deviation) -> str:
    if finding.kind == "created":
        return f"created  {finding.what}"
    if finding.kind == "changed":
        told = f"{finding.field} is {finding.expected} now, and was {finding.actual or 'not set'}"
        return one_line(f"changed  {finding.what}: {told}", 1000)
    found = f"{finding.field} is {finding.actual}, expected {finding.expected}"
    return one_line(f"differs  {finding.what}: {found}. Left as it is; {finding.remedy}", 1000)
