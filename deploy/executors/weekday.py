#!/usr/bin/env python3
"""An executor of its own: offers the tool `weekday` beside the gateway's. Needs nats-py alone; NATS_URL says where,
NATS_NKEY, NATS_CA and NATS_INBOX_PREFIX how it gets in where the server asks for a key. Its requests are pushed to it
by a consumer that `agentic setup --executor weekday-executor=weekday` makes.

Keep it running as any service: an error that it does not expect ends it. Requests wait on the bus while it is away.
After a crash one may come twice: a tool that writes must remember its keys.
"""

import asyncio
import datetime as dt
import itertools
import json
import os
import re
import ssl

import nats
from nats.errors import TimeoutError as Unanswered

NAME, RESULT = "weekday-executor", "agentic.tool_result"
CORRELATION = ("run_id", "step", "tool", "attempt", "task", "round", "capability")
SCHEMA = {"type": "object", "properties": {"date": {"type": "string", "format": "date"}}, "required": ["date"]}
COMMAND = {"name": "handle", "tier": "read", "description": "The day of the week of a date.", "input_schema": SCHEMA}
TOOL = {"name": "weekday", "route": "weekday", "timeout_s": 10, "commands": [COMMAND], "echoes_capability": True}
CATALOG = {"executor": NAME, "tools": [TOOL]}


def carry_out(arguments):
    try:
        day = f"{dt.date.fromisoformat(arguments['date']):%A}"
        return {"status": "ok", "result": {"summary": f"{arguments['date']} is a {day}", "weekday": day}}
    except (KeyError, ValueError) as flaw:
        return {"status": "error", "error": {"class": "invalid_arguments", "message": str(flaw), "retryable": False}}


async def publish(stream, body, key):
    for number in itertools.count(1):  # under the key; where somebody else's message has it, under the next id
        ack = await stream.publish(RESULT, body, headers={"Nats-Msg-Id": key if number == 1 else f"{key}#{number}"})
        if not ack.duplicate or await is_there(stream, ack, body):
            return


async def is_there(stream, ack, body):
    try:
        stored = await stream.get_msg(ack.stream, ack.seq)
    except Unanswered:  # a login that may not look; said twice it counts once
        return False
    return (stored.subject, stored.data) == (RESULT, body)


async def answer(stream, message):
    request = json.loads(message.data)
    asked, key = request["payload"], re.sub(r":request(?=(:attempt:\d+)?$)", ":result", request["dedupe_key"])
    now = dt.datetime.now(dt.UTC)
    too_late = asked.get("deadline_at") and dt.datetime.fromisoformat(asked["deadline_at"]) < now
    if asked.get("executor") in (None, NAME) and not too_late:  # else it is asked of another, or not waited for
        correlation = {name: asked[name] for name in CORRELATION if name in asked}
        payload = {**correlation, **carry_out(asked["tool_payload"]), "completed_at": now.isoformat()}
        await publish(stream, json.dumps({"type": RESULT, "payload": payload, "dedupe_key": key}).encode(), key)
    await message.ack()


async def tell(asked):
    await asked.respond(json.dumps(CATALOG).encode())


def login():
    names = {"nkeys_seed": "NATS_NKEY", "inbox_prefix": "NATS_INBOX_PREFIX"}
    given = {option: os.environ[name] for option, name in names.items() if name in os.environ}
    trusted = {"tls": ssl.create_default_context(cafile=os.environ["NATS_CA"])} if "NATS_CA" in os.environ else {}
    return given | trusted


async def main():
    url = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
    bus = await nats.connect(url, max_reconnect_attempts=-1, **login())
    stream = bus.jetstream()
    requests = await bus.subscribe(f"{NAME}.requests", queue=NAME)
    await bus.subscribe("ductile-gateway.catalog", cb=tell)
    async for message in requests.messages:
        await answer(stream, message)


if __name__ == "__main__":
    asyncio.run(main())
