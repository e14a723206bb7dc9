"""`ductile-gateway trust`: shows the trusted keys; with `--again` trusts those that the agent tells now."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from ductile_gateway.bus.outgoing import NatsAgentKeys
from ductile_gateway.cli import exits
from ductile_gateway.cli.options import Config
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store.opening import log_of_gateways
from ductile_gateway.store.pins import FilePins, Pinned, RowPins
from ductile_gateway.store.stream import StreamRows
from ductile_gateway.trust import contested_of, first_of
from groundwork.nats.link import NatsLink, connect
from groundwork.service.errors import Failure, Misconfigured, TryAgain
from groundwork.service.exits import Exit
from schemas import subjects
from schemas.signing import AgentKey

commands = typer.Typer()


async def trust(settings: GatewaySettings, *, again: bool) -> bool:
    """Whether all that the agent tells is trusted, or no agent answers. Raises Failure where `again` can do nothing."""
    given = settings.outbound.agent_keys
    if again and given:
        raise Misconfigured("gateway.outbound.agent_keys names the keys that are trusted: change them there")
    try:
        told = await _told(settings)
    except Failure as error:
        if again:
            raise
        _say(f"the agent could not be asked: {error}")
        told = ()
    if again:
        if not told:
            raise TryAgain("the agent tells no key, so that nothing is changed")
        async with _pins(settings) as pins:
            await pins.trust(first_of(told))
    async with _pins(settings) as pins:
        return _shown(pins, given, told)


@asynccontextmanager
async def _pins(settings: GatewaySettings) -> AsyncIterator[FilePins | RowPins]:
    if not settings.shared:
        yield FilePins(settings.store)
        return
    async with _linked(settings) as link:
        rows = StreamRows(log_of_gateways(link))
        row = await rows.read(Pinned)
        yield RowPins(row.pins if row else tuple, rows)


async def _told(settings: GatewaySettings) -> Sequence[AgentKey]:
    async with _linked(settings) as link:
        return (await NatsAgentKeys(link).keys()).keys


@asynccontextmanager
async def _linked(settings: GatewaySettings) -> AsyncIterator[NatsLink]:
    link = await connect(settings.nats, name=f"{subjects.SERVICE_GATEWAY} trust")
    try:
        yield link
    finally:
        await link.close()


def _shown(pins: FilePins | RowPins, given: Sequence[str], told: Sequence[AgentKey]) -> bool:
    for public in given:
        _say(f"trusted by gateway.outbound.agent_keys: {public}")
    for pin in () if given else pins.pins():
        gone = "" if not told or pin.id in {key.id for key in told} else ", which the agent has retired"
        _say(f"trusted since {pin.pinned_at}: {pin.id} {pin.public}{gone}")
    known = {key.id: key.public for key in told if key.public in given} if given else pins.all()
    strange = contested_of(told, known)
    for key in (key for key in told if key.id in strange):
        _say(f"told by the agent, and not trusted: {key.id} {key.public}")
    if not known:
        _say("no key is trusted yet: those of the agent are when the gateway first hears of them")
    elif strange and not given:
        _say("if that is your agent, with new keys: ductile-gateway trust --again")
    return not (strange and known)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


@commands.command("trust")
def trust_command(
    config: Config = None,
    again: Annotated[
        bool, typer.Option("--again", help="Forget what was pinned, and pin the keys that the agent tells now.")
    ] = False,
) -> None:
    """Exit code 1 where it tells one that is not trusted."""
    is_trusted = asyncio.run(trust(exits.settings_of(config), again=again))
    raise typer.Exit(Exit.OK if is_trusted else Exit.FAILED)
