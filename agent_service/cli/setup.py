"""`agentic setup`: creates what is missing on the NATS server, moves what earlier versions kept elsewhere, adds what
they did not set, and tells what differs: which it changes where that is asked for, and else leaves as it is."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from agent_service import settings
from agent_service.bus.moving import set_up as create_all
from agent_service.bus.topology import Executor, reserved_gib, size_found, topology
from agent_service.cli import configuration, output
from agent_service.cli.exits import Exit
from agent_service.telling.plain import one_line
from groundwork.nats import link as nats_link
from groundwork.nats.changing import MODE, change
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import Deviation, Topology, check_topology
from groundwork.service.errors import Misconfigured, NoRoom

CONNECT_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What there should be. Without `replicas` or `max_gib` what is made is as what is there. `change`: what exists
    otherwise, too; `dry_run`: nothing is done."""

    replicas: int | None = None
    max_gib: float | None = None
    executors: Sequence[Executor] = ()
    shared: bool = False
    change: bool = False
    dry_run: bool = False

    async def sized(self, link: NatsLink) -> tuple[int, float]:
        """Replicas and GiB."""
        replicas, gib = await size_found(link)
        return self.replicas or replicas, self.max_gib or gib

    def heeded(self, findings: Sequence[Deviation]) -> list[Deviation]:
        """Without the size of what exists, where none was named."""
        sized = self.max_gib is not None
        return [one for one in findings if sized or (one.kind, one.field) != ("differs", "max_bytes")]


async def set_up(config: Path | None, asked: Asked, *, as_json: bool) -> Exit:
    """FAILED when something exists that differs. Raises Misconfigured, and what the bus raises."""
    loaded = settings.load(configuration.own(config))
    asked = replace(asked, shared=asked.shared or loaded.shared)
    link = await nats_link.connect(loaded.nats, name="agentic-setup", timeout_s=CONNECT_WITHIN_S)
    try:
        replicas, gib = await asked.sized(link)
        wanted = topology(replicas=replicas, max_gib=gib, executors=asked.executors, shared=asked.shared)
        findings = await _carried_out(link, wanted, asked)
    except NoRoom as error:
        needed = f"with --max-gib {gib:g} it sets {reserved_gib(gib, shared=asked.shared):.1f} GiB aside"
        remedy = "name less, or raise max_file_store of the server or the limits of the account"
        raise Misconfigured(f"the NATS server has no room: {error}; {needed}: {remedy}") from error
    finally:
        await link.close()
    differs = any(finding.kind == "differs" for finding in findings)
    if as_json:
        told = {"ok": not differs, "dry_run": asked.dry_run, "findings": [asdict(finding) for finding in findings]}
        output.document(told)
    else:
        lines = [_planned(one, asked) if asked.dry_run else _line(one) for one in findings]
        output.draw("\n".join(lines) or "everything is there already", wrap=False)
    return Exit.FAILED if differs and not asked.dry_run else Exit.OK


async def _carried_out(link: NatsLink, wanted: Topology, asked: Asked) -> list[Deviation]:
    if asked.dry_run:
        return asked.heeded(await check_topology(link, wanted))
    done = asked.heeded(await create_all(link, wanted))
    if not asked.change:
        return done
    return [*(one for one in done if one.kind != "differs"), *await change(link, wanted, done)]


def _line(finding: Deviation) -> str:
    if finding.kind == "created":
        return f"created {finding.what}"
    if finding.kind == "changed":
        told = f"{finding.field} is {finding.expected} now, and was {finding.actual or 'not set'}"
        return one_line(f"changed {finding.what}: {told}", 1000)
    if finding.kind == "remade":
        told = f"made anew, with its consumers ({finding.expected}): what lay there is said again"
        return one_line(f"remade {finding.what}: {told}", 1000)
    left = f"Left as it is; {finding.remedy}; or have it changed with --change"
    return one_line(f"differs {finding.what}: {_is_and_should_be(finding)}. {left}", 1000)


def _planned(finding: Deviation, asked: Asked) -> str:
    if finding.kind == "missing":
        return f"would create {finding.what}"
    if finding.kind == "differs" and not asked.change:
        return one_line(f"would leave {finding.what}: {_is_and_should_be(finding)}; --change changes it", 1000)
    if finding.field == MODE:
        return f"would remake {finding.what}: it is made anew, and what lies there is said again"
    return one_line(f"would change {finding.what}: {_is_and_should_be(finding)}", 1000)


def _is_and_should_be(finding: Deviation) -> str:
    if finding.kind == "lacks":
        return f"{finding.field} lacks {finding.expected}"
    return f"{finding.field} is {finding.actual or 'not set'}, expected {finding.expected}"
