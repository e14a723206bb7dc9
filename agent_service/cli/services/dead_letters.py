"""`agentic dlq`: the dead letters of both services, straight from the bus, whether a service runs or not."""

import base64
import json
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table
from rich.text import Text

from agent_service import settings
from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.cli import output, whereabouts
from agent_service.cli.options import AsJson, ConfigNearby
from agent_service.cli.services.alone import bus_at_hand
from agent_service.history.plain import instant, one_line
from agent_service.views.inbox import DeadLetter, NoSuchLetter, NotSentAgain, Stored, letter_view
from groundwork.service.commands import examples
from groundwork.service.exits import Exit, NotDone
from groundwork.service.process import user_name

T = TypeVar("T")

LONGEST_CELL = 120
"""Characters; `show` has the whole."""
COLUMNS = ("id", "when (UTC)", "subject", "reason", "deliveries", "run")


commands = typer.Typer(no_args_is_help=True)

Number = Annotated[int, typer.Argument(min=1, help="As `agentic dlq ls` shows it.", metavar="ID")]
Numbers = Annotated[list[int], typer.Argument(min=1, help="As `agentic dlq ls` shows them.", metavar="ID")]


@commands.callback()
def about() -> None:
    """Those of both services, straight from the bus: no service has to run."""


@commands.command(epilog=examples("agentic dlq ls", "agentic dlq ls --all --json"))
def ls(
    everything: Annotated[bool, typer.Option("--all", help="Also those that were retried or dropped.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="The most to list, newest first.")] = 50,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """List the dead letters that nobody has dealt with, newest first."""
    found = [one for one in output.awaited(_with(config, NatsDeadLetters.all)) if everything or not one.settled]
    newest = found[::-1][:limit]
    if as_json:
        output.document({"dead_letters": [_told(letter) for letter in newest], "more": len(found) > limit})
    elif newest:
        output.draw(_table(newest, everything))
        if len(found) > limit:
            output.draw(f"and {len(found) - limit} older ones: see --limit")
    else:
        output.draw("there are no dead letters" if everything else "there are no dead letters that wait for anybody")


@commands.command(epilog=examples("agentic dlq show 17"))
def show(number: Number, config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Show one: where it came from, why it was refused, its headers and its body."""

    async def looked_up(letters: NatsDeadLetters) -> tuple[DeadLetter, Stored | None]:
        letter = await letters.held(number)
        return letter, await letters.refused(letter)

    letter, refused = output.awaited(_with(config, looked_up))
    told = {"headers": dict(letter.headers), **_body(refused)}
    output.tell(_told(letter) | told, _page(letter, refused), as_json=as_json)


@commands.command(epilog=examples("agentic dlq retry 17", "agentic dlq retry 17 18 19"))
def retry(numbers: Numbers, config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Send the refused message again, as it was, to where it was sent: once its cause is mended.

    It goes out once, under an id of its own and with its dedupe_key unchanged; that you did it is recorded.
    """

    async def sent_again(letters: NatsDeadLetters) -> None:
        for number in numbers:
            letter, sent = await letters.retry(number, who())
            told = {"id": number, "subject": letter.subject, "stream": sent.stream, "stream_seq": sent.seq}
            text = f"dead letter {number} was sent again to {letter.subject}: message {sent.seq} of {sent.stream}"
            output.tell(told | {"status": "retried", "by": who()}, text, as_json=as_json)

    output.awaited(_with(config, sent_again))


@commands.command(epilog=examples("agentic dlq drop 17"))
def drop(numbers: Numbers, config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Delete a dead letter; that you did it is recorded, and `ls --all` shows it."""

    async def dropped(letters: NatsDeadLetters) -> None:
        for number in numbers:
            gone = await letters.drop(number, who())
            kept = "" if gone else "; the stream lets nothing be deleted, so it stays there"
            told = {"id": number, "status": "dropped", "by": who()}
            output.tell(told, f"dead letter {number} was dropped{kept}", as_json=as_json)

    output.awaited(_with(config, dropped))


def who() -> str:
    """The OS user of this process and its machine, for the record: not what the environment calls them."""
    return one_line(f"{user_name(os.getuid())}@{socket.gethostname()}", 200)


async def _with(config: Path | None, work: Callable[[NatsDeadLetters], Awaitable[T]]) -> T:
    async with bus_at_hand(settings.load(whereabouts.nearby(config))) as link:
        try:
            return await work(NatsDeadLetters(link))
        except (NoSuchLetter, NotSentAgain) as error:
            code = Exit.NOT_FOUND if isinstance(error, NoSuchLetter) else Exit.REFUSED
            raise NotDone(str(error), code) from error


def _table(letters: Sequence[DeadLetter], everything: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (*COLUMNS, *(["status"] if everything else [])):
        table.add_column(column, no_wrap=column in ("id", "when (UTC)", "run"), overflow="fold")
    for letter in letters:
        line = _told(letter)
        cells = [line["id"], instant(letter.buried)[:19], line["subject"], line["reason"], line["deliveries"]]
        state = [f"{line['status']} by {letter.settled.by}" if letter.settled else "open"] if everything else []
        table.add_row(*(Text(one_line(str(cell), LONGEST_CELL)) for cell in (*cells, line["run_id"] or "", *state)))
    return table


def _told(letter: DeadLetter) -> dict[str, Any]:
    return letter_view(letter).model_dump(mode="json", exclude={"body"})


def _page(letter: DeadLetter, refused: Stored | None) -> str:
    head = [f"dead letter {letter.id} of {instant(letter.buried)}, to {letter.subject}"]
    if letter.settled:
        head.append(f"{letter.settled.deed} by {letter.settled.by} at {instant(letter.settled.at)}")
    headers = [f"{name}: {value}" for name, value in letter.headers.items()]
    body = "(the message is gone from its stream)" if refused is None else _text(refused.body)
    return "\n".join((*head, "", *headers, "", body))


def _text(body: bytes) -> str:
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return body.decode(errors="backslashreplace") or "(no body)"


def _body(refused: Stored | None) -> dict[str, str | None]:
    if refused is None:
        return {"body": None}
    try:
        return {"body": refused.body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(refused.body).decode()}
