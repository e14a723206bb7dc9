"""The accounts of a NATS server, in the language of its configuration: logins with their permissions, and no other.

Every login has a key of its own (nkeys, NATS ADR-14): the server's files hold the public half, and no secret.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from schemas.permissions import Permissions, RoleName, permissions_of

ACCOUNT = "AGENTIC"
SYSTEM = "system"
"""The login that may look after the server itself. It sees nothing of the account."""
MOST_CONNECTIONS = 256
MOST_SUBSCRIPTIONS = 4096
ANSWER_WITHIN = "1m"


@dataclass(frozen=True, slots=True)
class Login:
    """`name` is what its inbox, an executor's consumer, and its key are called."""

    name: str
    role: RoleName

    @property
    def variable(self) -> str:
        """What stands for its public key."""
        return key_variable(self.name)


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
"""One of each role, with an executor such as those of deploy/executors/."""


def key_variable(name: str) -> str:
    return f"NKEY_{name.upper().replace('-', '_')}"


def accounts(logins: Iterable[Login]) -> str:
    """The file `accounts.conf`: what `keys.conf` beside it calls by the variables of the logins are their keys."""
    return "\n".join((*_head(), *(line for login in logins for line in _user(login)), *_tail(), ""))


def _head() -> Iterator[str]:
    yield "# Made by the program from schemas/permissions.py: who may say and hear what. docs/BUS.md says why."
    yield "include ./keys.conf"
    yield ""
    yield "accounts {"
    yield f"  {ACCOUNT} {{"
    yield "    jetstream: enabled"
    yield f"    limits {{ max_connections: {MOST_CONNECTIONS}, max_subscriptions: {MOST_SUBSCRIPTIONS} }}"
    yield "    users: ["


def _user(login: Login) -> Iterator[str]:
    may = permissions_of(login.role, login.name)
    yield f"      {{ # {login.name}"
    yield f"        nkey: ${login.variable}"
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


def _tail() -> Iterator[str]:
    yield "    ]"
    yield "  }"
    yield f"  SYS {{ users: [ {{ nkey: ${key_variable(SYSTEM)} }} ] }}"
    yield "}"
    yield "system_account: SYS"
