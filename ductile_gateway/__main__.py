"""The command line: `ductile-gateway serve`; `check`, which lists the tools and starts nothing; `trust`, which shows
the keys by which the agent's word is known; and `migrate`, which moves the ledger between the database of one gateway
and the stream of several.

It ends as the agent does: with 0 after SIGTERM or SIGINT, 69 where nothing answers (no bus; of `check`, no Ductile), 78
where the configuration has to be mended first or another gateway owns the bus, and 1 for any other trouble, after which
a restart may help; of `trust`, with 1 where the agent tells a key that is not trusted. `check` ends with 78 only for
what is wrong, or where a tool or command that was chosen is left out; with what it warns of it ends with 0.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from ductile_gateway.ductile import discovery
from ductile_gateway.plugins.boxes import boundary_of, look_at_boundary
from ductile_gateway.settings import GatewaySettings, load
from ductile_gateway.tools.catalog import Offers
from ductile_gateway.tools.toolbox import Tools, find_tools
from groundwork.service import garbage, json_log, kernel
from groundwork.service.config_file import secrets_in
from groundwork.service.errors import Failure, Misconfigured, TryAgain, Unreachable, causes
from groundwork.service.installed import installed_version
from groundwork.service.secret import equal_ones
from groundwork.service.signals import ended_by_signals
from schemas.catalog import ToolCommand
from schemas.gateway_status import Finding

DEFAULT_CONFIG = Path("agentic.yaml")
EX_UNAVAILABLE = 69
EX_CONFIG = 78

log = logging.getLogger(__name__)

COMMANDS = ("serve", "check", "trust", "migrate")


def main(argv: Sequence[str] | None = None) -> None:
    """Raises SystemExit."""
    asked = _arguments(argv)
    file = asked.config or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
    try:
        settings = load(file)
    except Misconfigured as error:
        sys.stderr.write(f"ductile-gateway: {error}\n")
        raise SystemExit(EX_CONFIG) from None
    if asked.command == "check" and asked.settings_only:
        raise SystemExit(0)
    if asked.command == "check":
        json_log.set_up("WARNING", "text", redact=settings.secrets)
        raise SystemExit(check(settings))
    if asked.command == "trust":
        json_log.set_up("WARNING", "text", redact=settings.secrets)
        raise SystemExit(trusted(settings, again=asked.again))
    if asked.command == "migrate":
        json_log.set_up("WARNING", "text", redact=settings.secrets)
        raise SystemExit(moved(settings, to=asked.to, sqlite=asked.sqlite))
    json_log.set_up(settings.log.level.upper(), settings.log.format, redact=settings.secrets)
    for told in equal_ones(secrets_in(file, os.environ)) if file else ():
        log.warning("%s: give each its own", told)
    raise SystemExit(run(settings, take_over=asked.take_over))


def run(settings: GatewaySettings, *, take_over: bool = False) -> int:
    """Serve until a signal comes; the exit code."""
    kernel.hide_memory()
    try:
        uvloop.run(_until_told(settings, take_over=take_over))
    except KeyboardInterrupt:  # while its modules were loaded
        pass
    except Exception as error:  # noqa: BLE001 - the last stop: what is told here is all that is told
        return _told(error)
    log.info("stopped")
    return 0


def check(settings: GatewaySettings) -> int:
    """Tell of Ductile and of the tools, and what is wrong; the exit code. What is wrong with plugins is in the log."""
    try:
        tools = asyncio.run(find_tools(settings))
        findings = asyncio.run(_of_runner(settings, tools))
    except (Misconfigured, TryAgain) as error:
        sys.stdout.write(f"{error}\n")
        return EX_CONFIG if isinstance(error, Misconfigured) else EX_UNAVAILABLE
    for finding in findings:
        remedy = f" -> {finding.remedy}" if finding.remedy else ""
        sys.stdout.write(f"{finding.name}: {finding.text}{remedy}\n")
    for offer in tools.catalog.tools:
        commands = ", ".join(f"{command.name} ({_kind(command)})" for command in offer.commands)
        brings = ", brings what strangers wrote" if offer.output == "untrusted" else ""
        sys.stdout.write(f"tool {offer.name}: plugin {offer.route}, {commands}, {offer.timeout_s:g} s{brings}\n")
    for problem in tools.problems:
        sys.stdout.write(f"problem: {problem}\n")
    is_usable = tools.catalog.tools and not _left_out(settings, tools)
    return EX_CONFIG if not is_usable or any(finding.mark == "wrong" for finding in findings) else 0


def trusted(settings: GatewaySettings, *, again: bool) -> int:
    """Tell whose word is passed on, or trust the agent's keys anew; the exit code."""
    from ductile_gateway.trust_command import trust

    try:
        return 0 if asyncio.run(trust(settings, again=again)) else 1
    except Failure as error:
        sys.stdout.write(f"{error}\n")
        return EX_CONFIG if isinstance(error, Misconfigured) else EX_UNAVAILABLE


def moved(settings: GatewaySettings, *, to: str | None, sqlite: Path | None) -> int:
    """Move the ledger; the exit code."""
    from ductile_gateway.migrate_command import migrate

    try:
        asyncio.run(migrate(settings, to=to or "jetstream", sqlite=sqlite))
    except Exception as error:  # noqa: BLE001 - what is told here is all that is told
        return _told(error)
    return 0


def _kind(command: ToolCommand) -> str:
    """Its tier, where a write takes effect, and when a person must allow it, as far as that is said."""
    approve = f"approve {command.approve}" if command.approve else ""
    effect = command.effect if command.tier == "write" else None
    return ", ".join(filter(None, (command.tier, effect, approve)))


def _left_out(settings: GatewaySettings, tools: Tools) -> bool:
    """Whether something that was chosen by its name is not on offer."""
    offered = {offer.name: {command.name for command in offer.commands} for offer in tools.catalog.tools}
    chosen = (settings.choices() or {}).items()
    return any(name not in offered or set(choice.commands or ()) - offered[name] for name, choice in chosen)


async def _of_runner(settings: GatewaySettings, tools: Tools) -> Sequence[Finding]:
    if settings.runner == "plugins":
        return look_at_boundary(boundary_of(settings.plugins))
    if settings.runner != "ductile":
        return ()
    offers = Offers()
    offers.replace(tools.catalog)
    return await discovery.look(settings.ductile, offers)


async def _until_told(settings: GatewaySettings, *, take_over: bool) -> None:
    with garbage.uncollected():
        from ductile_gateway.app import serve  # `check` needs none of it
    garbage.collect_seldom()
    with ended_by_signals(lambda: None):
        await serve(settings, take_over=take_over)


def _told(error: Exception) -> int:
    found = list(causes(error))
    for cause in found:
        if isinstance(cause, Failure):
            log.critical("%s", cause)
        else:
            log.critical("unexpected", exc_info=cause)
    if any(isinstance(cause, Misconfigured) for cause in found):
        return EX_CONFIG
    return EX_UNAVAILABLE if any(isinstance(cause, Unreachable) for cause in found) else 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ductile-gateway", description="Carries tool requests to their tools.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {installed_version()}")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--config", type=Path, help=f"default: {DEFAULT_CONFIG}, if it is there")
    parser.add_argument(
        "--take-over", action="store_true", help="serve: make the gateway end that owns the bus, and go on in its place"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="trust: forget what was pinned, and pin the keys that the agent tells now",
    )
    parser.add_argument("--to", choices=("jetstream", "sqlite"), help="migrate: where the ledger is to be")
    parser.add_argument("--sqlite", type=Path, help="migrate: the folder of the database, if not that of the settings")
    parser.add_argument("--settings-only", action="store_true", help="check: look at the settings, and ask nobody")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
