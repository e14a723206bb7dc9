"""The accounts of a NATS server, in the language of its configuration: logins with their permissions, and no other."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from schemas.permissions import Permissions, RoleName, permissions_of

ACCOUNT = "AGENTIC"
SYSTEM = "system"
MOST_CONNECTIONS = 256
MOST_SUBSCRIPTIONS = 4096
ANSWER_WITHIN = "1m"


@dataclass(frozen=True, slots=True)
class Login:
    name: str
    role: RoleName


SHIPPED = (
    Login("setup", "setup"),
    Login("agent", "agent"),
    Login("gateway", "gateway"),
    Login("executor", "executor"),
    Login("publisher", "publisher"),
    Login("approver", "approver"),
    Login("operator", "operator"),
    Login("observer", "observer"),
)


def accounts(logins: Iterable[Login], key_of: Callable[[str], str]) -> str:
    users = (line for login in logins for line in _user(login, key_of(login.name)))
    return "\n".join((*_head(), *users, *_tail(key_of(SYSTEM)), ""))


def key_variable(name: str) -> str:
    return f"$NKEY_{name.upper().replace('-', '_')}"


def _head() -> Iterator[str]:
    yield "# Made by the program from schemas/permissions.py: who may say and hear what. docs/BUS.md says why."
    yield "accounts {"
    yield f"  {ACCOUNT} {{"
    yield "    jetstream: enabled"
    yield f"    limits {{ max_connections: {MOST_CONNECTIONS}, max_subscriptions: {MOST_SUBSCRIPTIONS} }}"
    yield "    users: ["


def _user(login: Login, key: str) -> Iterator[str]:
    may = permissions_of(login.role, login.name)
    yield f"      {{ # {login.name}"
    yield f"        nkey: {key}"
    yield "        permissions {"
    yield f"          publish {{ allow: {_list(may.publish)} }}"
    yield f"          subscribe {{ allow: {_list(may.subscribe)} }}"
    yield from _answers(may)
    yield "        }"
    yield "      }"


def _answers(may: Permissions) -> Iterator[str]:
    if may.answers:
        yield f'          allow_responses {{ max: 1, expires: "{ANSWER_WITHIN}" }}'


def _list(patterns: Iterable[str]) -> str:
    lines = "".join(f"\n            {json.dumps(pattern)}" for pattern in dict.fromkeys(patterns))
    return f"[{lines}\n          ]"


def _tail(key: str) -> Iterator[str]:
    yield "    ]"
    yield "  }"
    yield f"  SYS {{ users: [ {{ nkey: {key} }} ] }}"
    yield "}"
    yield "system_account: SYS"
