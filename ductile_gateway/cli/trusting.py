"""`ductile-gateway trust`: shows the trusted keys; with `--again` trusts the agent's present keys."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import typer

from ductile_gateway.bus.outgoing import agent_keys
from ductile_gateway.cli.archive import COMMAND
from ductile_gateway.cli.main import CONFIG, settings_of
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE, MIGRATIONS
from ductile_gateway.store.opening import log_of_gateways, open_alone
from ductile_gateway.store.rows import FileCarrier, Rows, StreamCarrier
from ductile_gateway.trust import Pin, Pins, contested_of
from groundwork.nats.link import connect
from groundwork.service.commands import flag, say
from groundwork.service.errors import Exit, Failure, Misconfigured, TryAgain
from groundwork.service.serving import stopped_store
from groundwork.sqlite.file import open_for_reading
from schemas.signing import AgentKey

commands = typer.Typer()


async def trust(settings: GatewaySettings, *, again: bool) -> bool:
    """True if all keys of the agent are trusted, or no agent answers. Raises Failure if `again` is impossible."""
    given, keys = settings.outbound.agent_keys, list[AgentKey]()
    if again and given:
        raise Misconfigured("gateway.outbound.agent_keys names the keys that are trusted: change them there")
    try:
        async with connect(settings.nats, COMMAND) as link:
            keys += await agent_keys(link)
    except Failure as error:
        if again:
            raise
        say(f"the agent could not be asked: {error}")
    if again and not keys:
        raise TryAgain("the agent tells no key, so that nothing is changed")
    async with _pins(settings, writable=again) as pins:
        if again:
            await pins.trust(keys)
        return _shown(await pins.newest(), given, keys)


@asynccontextmanager
async def _pins(settings: GatewaySettings, *, writable: bool) -> AsyncIterator[Pins]:
    """Raises Misconfigured for a change beside a running gateway."""
    if settings.shared:
        async with connect(settings.nats, COMMAND) as link:
            yield Pins(Rows(StreamCarrier(log_of_gateways(link))))
    elif writable or not (settings.store / FILE).exists():
        with stopped_store(settings.store):
            async with open_alone(settings.store) as rows:
                yield Pins(rows)
    else:
        async with open_for_reading(settings.store / FILE, MIGRATIONS) as file:
            yield Pins(Rows(FileCarrier(file)))


def _shown(pins: Sequence[Pin], given: Sequence[str], keys: Sequence[AgentKey]) -> bool:
    for public in given:
        say(f"trusted by gateway.outbound.agent_keys: {public}")
    for pin in () if given else pins:
        retired = "" if not keys or pin.id in {key.id for key in keys} else ", which the agent has retired"
        say(f"trusted since {pin.pinned_at}: {pin.id} {pin.public}{retired}")
    pinned = {pin.id: pin.public for pin in pins}
    known = {key.id: key.public for key in keys if key.public in given} if given else pinned
    untrusted = contested_of(keys, known)
    for key in (key for key in keys if key.id in untrusted):
        say(f"told by the agent, and not trusted: {key.id} {key.public}")
    if not (known or given):
        say("no key is trusted yet: those of the agent are when the gateway first hears of them")
    elif untrusted:
        remedy = (
            "name them in gateway.outbound.agent_keys"
            if given
            else "stop the gateway, then `ductile-gateway trust --again`"
        )
        say(f"if that is your agent, with new keys: {remedy}")
    return not (untrusted and (known or given))


@commands.command("trust")
def trust_command(
    config: Path | None = CONFIG,
    again: bool = flag("Forget what was pinned, and pin the keys that the agent tells now.", "--again"),
) -> None:
    """Exit code 1 if the agent has a key that is not trusted."""
    is_trusted = asyncio.run(trust(settings_of(config), again=again))
    raise typer.Exit(Exit.OK if is_trusted else Exit.FAILED)
