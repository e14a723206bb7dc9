"""`agentic dlq`: the dead letters of both services, straight from the bus, whether a service runs or not."""

import base64
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from rich.table import Table
from rich.text import Text

from agent_service import settings
from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.cli import configuration, output
from agent_service.cli.complaints import NotDone
from agent_service.cli.exits import Exit
from agent_service.telling.letters import DeadLetter, NoSuchLetter, NotSentAgain, Stored
from agent_service.telling.plain import instant, one_line
from groundwork.nats import link as nats_link
from groundwork.service.user_name import user_name

CONNECT_WITHIN_S = 5.0
LONGEST_CELL = 120
"""Characters; `show` has the whole."""
COLUMNS = ("id", "when (UTC)", "subject", "reason", "deliveries", "run")


async def ls(config: Path | None, *, everything: bool, limit: int, as_json: bool) -> None:
    """The newest `limit` letters that nobody has dealt with, or all of them."""
    async with _opened(config) as letters:
        found = [letter for letter in await letters.all() if everything or not letter.settled]
    newest = found[::-1][:limit]
    if as_json:
        output.document({"dead_letters": [letter.for_programs() for letter in newest], "more": len(found) > limit})
    elif newest:
        output.draw(_table(newest, everything))
        if len(found) > limit:
            output.draw(f"and {len(found) - limit} older ones: see --limit")
    else:
        output.draw("there are no dead letters" if everything else "there are no dead letters that wait for anybody")


async def show(config: Path | None, number: int, *, as_json: bool) -> None:
    """One letter: its headers, and the message that was refused."""
    async with _opened(config) as letters:
        with _refusals():
            letter = await letters.held(number)
        refused = await letters.refused(letter)
    told = {"headers": dict(letter.headers), **_body(refused)}
    output.tell(letter.for_programs() | told, _page(letter, refused), as_json=as_json)


async def retry(config: Path | None, numbers: Sequence[int], *, as_json: bool) -> None:
    """Send refused messages again, one after the other. Raises NotDone at the first that cannot be."""
    async with _opened(config) as letters:
        for number in numbers:
            with _refusals():
                letter, sent = await letters.retry(number, who())
            told = {"id": number, "subject": letter.subject, "stream": sent.stream, "stream_seq": sent.seq}
            text = f"dead letter {number} was sent again to {letter.subject}: message {sent.seq} of {sent.stream}"
            output.tell(told | {"status": "retried", "by": who()}, text, as_json=as_json)


async def drop(config: Path | None, numbers: Sequence[int], *, as_json: bool) -> None:
    """Take letters away, one after the other. Raises NotDone at the first that is not there."""
    async with _opened(config) as letters:
        for number in numbers:
            with _refusals():
                gone = await letters.drop(number, who())
            kept = "" if gone else "; the stream lets nothing be deleted, so it stays there"
            output.tell(
                {"id": number, "status": "dropped", "by": who()},
                f"dead letter {number} was dropped{kept}",
                as_json=as_json,
            )


def who() -> str:
    """The OS user of this process and its machine, for the record: not what the environment calls them."""
    return one_line(f"{user_name(os.getuid())}@{socket.gethostname()}", 200)


@asynccontextmanager
async def _opened(config: Path | None) -> AsyncIterator[NatsDeadLetters]:
    loaded = settings.load(configuration.nearby(config))
    link = await nats_link.connect(loaded.nats, name="agentic-dlq", timeout_s=CONNECT_WITHIN_S)
    try:
        yield NatsDeadLetters(link)
    finally:
        await link.close()


@contextmanager
def _refusals() -> Iterator[None]:
    """What cannot be done with a letter, as the command says it."""
    try:
        yield
    except NoSuchLetter as error:
        raise NotDone(str(error), Exit.NOT_FOUND) from error
    except NotSentAgain as error:
        raise NotDone(str(error), Exit.REFUSED) from error


def _table(letters: Sequence[DeadLetter], everything: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (*COLUMNS, *(["status"] if everything else [])):
        table.add_column(column, no_wrap=column in ("id", "when (UTC)", "run"), overflow="fold")
    for letter in letters:
        line = letter.for_programs()
        cells = [line["id"], instant(letter.buried)[:19], line["subject"], line["reason"], line["deliveries"]]
        state = [f"{line['status']} by {letter.settled.by}" if letter.settled else "open"] if everything else []
        table.add_row(*(Text(one_line(str(cell), LONGEST_CELL)) for cell in (*cells, line["run_id"] or "", *state)))
    return table


def _page(letter: DeadLetter, refused: Stored | None) -> str:
    head = [f"dead letter {letter.id} of {instant(letter.buried)}, to {letter.subject}"]
    if letter.settled:
        head.append(f"{letter.settled.deed} by {letter.settled.by} at {instant(letter.settled.at)}")
    headers = [f"{name}: {value}" for name, value in letter.headers.items()]
    body = "(the message is gone from its stream)" if refused is None else _text(refused.body)
    return "\n".join((*head, "", *headers, "", body))


def _text(body: bytes) -> str:
    """For people: JSON in lines, anything else as it is, with signs for what is no text."""
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
