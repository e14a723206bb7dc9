"""Permissions on the bus by role, and the accounts of a NATS server in its configuration language.

A login is a role and a name, and gets answers under its own inbox, `_INBOX.<name>`. Only the setup may create, change
or delete a stream. A login that creates consumers, pulls messages or reads them directly (`$JS.API.DIRECT`) chooses the
subject that they are sent to, and so could publish anywhere: an executor has none of these permissions. Its requests
are pushed to it, on a subject that `agentic setup --executor NAME=ROUTE` sets.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Literal

from schemas import subjects
from schemas.operations import endpoint_subjects
from schemas.values import dataclass

RoleName = Literal["setup", "agent", "gateway", "executor", "publisher", "approver", "operator", "observer"]

INBOX = "_INBOX"
ANSWERS = (f"{INBOX}.>", "_R_.>")
STREAMS = tuple(subjects.STREAMS)
SHARED_STREAMS = (subjects.STREAM_RUNS, subjects.STREAM_LEDGER, subjects.STREAM_TURNS)
BUCKETS = (f"OBJ_{subjects.ARTIFACT_BUCKET}", f"KV_{subjects.LEASE_BUCKET}")
ALL_STREAMS = (*STREAMS, *SHARED_STREAMS, *BUCKETS)
AGENTS = subjects.lease_key(subjects.LEASE_AGENT, "*")
GATEWAYS = subjects.lease_key(subjects.LEASE_GATEWAY, "*")
IN_FLIGHT = f"{subjects.IN_FLIGHT}.*"
AGENT_CONSUMERS, GATEWAY_CONSUMERS = (
    tuple(f"{stream}.{name}" for name, (stream, _) in consumers.items())
    for consumers in (subjects.AGENT_CONSUMERS | subjects.SHARED_CONSUMERS, subjects.GATEWAY_CONSUMERS)
)
ORDERS = (subjects.START, subjects.TOOL_RESULT, subjects.CANCEL, subjects.SIGNAL)
ACCOUNTS = ("", "*.*.")
"""Tokens before the stream in an acknowledgement's subject: none, or domain and account (NATS ADR-15)."""
ADVISED_ON = ("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$SYS.REQ.USER.INFO")


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """Subjects and patterns, besides the login's own inbox. `answers`: the login may answer each request once."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...] = ()
    answers: bool = False


def _api(calls: Iterable[str], what: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"$JS.API.{call}.{name}" for call, name in product(calls, tuple(what)))


def _consuming(consumers: Iterable[str]) -> tuple[str, ...]:
    return (*_api(("CONSUMER.MSG.NEXT",), consumers), *_acknowledging(consumers))


def _acknowledging(consumers: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"$JS.ACK.{account}{consumer}.>" for consumer in consumers for account in ACCOUNTS)


def _elected(consumers: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.{consumer}" for consumer in consumers)


def _reading(streams: Iterable[str]) -> tuple[str, ...]:
    kept = tuple(streams)
    passing = _api(("CONSUMER.CREATE", "CONSUMER.DELETE", "CONSUMER.MSG.NEXT"), [f"{stream}.>" for stream in kept])
    unnamed = _api(("CONSUMER.CREATE",), kept)
    looking = _api(("CONSUMER.INFO",), [f"{stream}.>" for stream in kept])
    lists = _api(("CONSUMER.LIST",), kept)
    flow = (f"$JS.FC.{account}{stream}.>" for stream in kept for account in ACCOUNTS)
    return (*passing, *unnamed, *looking, *lists, *flow)


def _leases(*keys: str) -> tuple[str, ...]:
    return tuple(f"$KV.{subjects.LEASE_BUCKET}.{key}" for key in keys)


def _storing(facts: str, stream: str) -> tuple[str, ...]:
    looks = _api(("STREAM.INFO", "STREAM.MSG.GET", "STREAM.PURGE"), (stream,))
    return (f"{facts}.>", *looks, *_reading((stream,)))


def _artifacts() -> tuple[str, ...]:
    bucket = f"OBJ_{subjects.ARTIFACT_BUCKET}"
    return (f"$O.{subjects.ARTIFACT_BUCKET}.>", f"$JS.API.STREAM.PURGE.{bucket}", *_reading((bucket,)))


def _listed(service: str) -> tuple[str, ...]:
    """Subjects of a micro service's discovery, for `nats micro`."""
    return ("$SRV.*", f"$SRV.*.{service}", f"$SRV.*.{service}.*")


_LOGIN = "{login}"
"""Stands for the name of a login in the subjects of its role."""
_ROLES: Mapping[RoleName, Permissions] = {
    "setup": Permissions(
        publish=(
            *ADVISED_ON,
            *_api(("STREAM.CREATE", "STREAM.UPDATE", "STREAM.INFO", "STREAM.RESTORE"), ALL_STREAMS),
            *(f"$JS.SNAPSHOT.RESTORE.{stream}.>" for stream in ALL_STREAMS),
            *_api(
                ("CONSUMER.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE"),
                [f"{one}.>" for one in (*STREAMS, subjects.STREAM_TURNS)],
            ),
            *_api(("STREAM.DELETE", "CONSUMER.LIST"), (subjects.STREAM_REQUESTS, subjects.STREAM_PROGRESS)),
        ),
    ),
    "agent": Permissions(
        publish=(
            *ORDERS,
            subjects.ALL_TOOL_REQUESTS,
            *subjects.RUN_EVENTS,
            subjects.REJECTED,
            subjects.TURN,
            subjects.DEAD_LETTERS_LOOP,
            subjects.DEAD_LETTERS_CONTROL,
            f"{subjects.SETTLED}.*",
            subjects.CATALOG,
            subjects.STATUS,
            subjects.CALLBACK,
            subjects.PRUNE,
            *ANSWERS,
            *_leases(subjects.LEASE_AGENT, subjects.HALT_KEY, AGENTS, subjects.lease_key(subjects.LIMIT, "*")),
            *_storing(subjects.STORE, subjects.STREAM_RUNS),
            f"$JS.API.DIRECT.GET.{subjects.STREAM_RUNS}",
            *_artifacts(),
            *ADVISED_ON,
            *_api(("STREAM.INFO", "STREAM.MSG.GET"), (*STREAMS, *BUCKETS)),
            *_api(("STREAM.INFO",), (subjects.STREAM_LEDGER, subjects.STREAM_TURNS)),  # that it exists and has room
            *_api(("CONSUMER.INFO",), (*AGENT_CONSUMERS, *GATEWAY_CONSUMERS)),
            *_reading(
                (subjects.STREAM, subjects.STREAM_RESULTS, subjects.STREAM_REQUESTS, subjects.STREAM_DEAD_LETTERS)
            ),
            *_consuming(AGENT_CONSUMERS),
            f"$JS.API.STREAM.MSG.DELETE.{subjects.STREAM_DEAD_LETTERS}",
        ),
        subscribe=(
            subjects.TOOL_RESULT,
            f"{subjects.SERVICE_AGENT}.*",
            *_leases(subjects.HALT_KEY),
            *_elected(AGENT_CONSUMERS),
            *_listed(subjects.SERVICE_AGENT),
        ),
    ),
    "gateway": Permissions(
        publish=(
            subjects.START,
            subjects.TOOL_RESULT,
            subjects.REJECTED,
            subjects.DEAD_LETTERS_TOOLS,
            subjects.DEAD_LETTERS_OUTBOUND,
            *endpoint_subjects("gateway"),
            *ANSWERS,
            *_leases(subjects.LEASE_GATEWAY, GATEWAYS, IN_FLIGHT),
            *_storing(subjects.LEDGER, subjects.STREAM_LEDGER),
            *_artifacts(),
            *ADVISED_ON,
            *_api(("STREAM.INFO", "STREAM.MSG.GET"), (*STREAMS, *BUCKETS)),
            *_api(("CONSUMER.INFO",), GATEWAY_CONSUMERS),
            *_consuming(GATEWAY_CONSUMERS),
        ),
        subscribe=(
            *_leases(GATEWAYS, subjects.HALT_KEY, IN_FLIGHT),
            *_elected(GATEWAY_CONSUMERS),
            f"{subjects.SERVICE_GATEWAY}.*",
            *_listed(subjects.SERVICE_GATEWAY),
        ),
    ),
    "executor": Permissions(
        publish=(subjects.TOOL_RESULT, *_acknowledging((f"{subjects.STREAM_REQUESTS}.{_LOGIN}",))),
        subscribe=(subjects.requests_of(_LOGIN), subjects.CATALOG),
        answers=True,
    ),
    "publisher": Permissions(publish=(subjects.START, *endpoint_subjects("publisher"))),
    "approver": Permissions(publish=endpoint_subjects("approver"), subscribe=(subjects.WAITING, subjects.REOPENED)),
    "operator": Permissions(
        publish=(
            *ORDERS,
            subjects.ALL_TOOL_REQUESTS,
            f"{subjects.SERVICE_AGENT}.*",
            f"{subjects.SERVICE_GATEWAY}.*",
            "$SRV.>",
            *ADVISED_ON,
            "$JS.API.STREAM.LIST",
            *_api(("STREAM.INFO", "STREAM.MSG.GET", "STREAM.SNAPSHOT", "CONSUMER.LIST", "CONSUMER.NAMES"), ALL_STREAMS),
            *(f"$JS.SNAPSHOT.ACK.{stream}.>" for stream in ALL_STREAMS),
            *_api(("CONSUMER.INFO",), [f"{stream}.>" for stream in ALL_STREAMS]),
            *_reading(ALL_STREAMS),
            *_api(("DIRECT.GET",), (*ALL_STREAMS, *(f"{stream}.>" for stream in ALL_STREAMS))),
            f"$JS.API.STREAM.MSG.DELETE.{subjects.STREAM_DEAD_LETTERS}",
        ),
        subscribe=("agentic.>", "agent.>", f"{subjects.LOG}.>"),
    ),
    "observer": Permissions(publish=endpoint_subjects("observer"), subscribe=("agent.>", f"{subjects.LOG}.agent.>")),
}


def inbox_of(login: str) -> str:
    return f"{INBOX}.{login}"


def permissions_of(role: RoleName, login: str) -> Permissions:
    own = _ROLES[role]
    publish, subscribe = (
        tuple(subject.replace(_LOGIN, login) for subject in some)
        for some in (own.publish, (f"{INBOX}.{_LOGIN}.>", *own.subscribe))
    )
    return Permissions(publish=publish, subscribe=subscribe, answers=own.answers)


ACCOUNT = "AGENTIC"
SYSTEM = "system"
MOST_CONNECTIONS = 256
MOST_SUBSCRIPTIONS = 4096
ANSWER_WITHIN = "1m"


@dataclass(frozen=True, slots=True)
class Login:
    name: str
    role: RoleName


SHIPPED = tuple(Login(role, role) for role in _ROLES)


def accounts(logins: Iterable[Login], key_of: Callable[[str], str]) -> str:
    users = "\n".join(_user(login, key_of(login.name)) for login in logins)
    return f"""\
# Made by the program from schemas/permissions.py: who may say and hear what. docs/BUS.md says why.
accounts {{
  {ACCOUNT} {{
    jetstream: enabled
    limits {{ max_connections: {MOST_CONNECTIONS}, max_subscriptions: {MOST_SUBSCRIPTIONS} }}
    users: [
{users}
    ]
  }}
  SYS {{ users: [ {{ nkey: {key_of(SYSTEM)} }} ] }}
}}
system_account: SYS
"""


def key_variable(name: str) -> str:
    return f"$NKEY_{name.upper().replace('-', '_')}"


def _user(login: Login, key: str) -> str:
    may = permissions_of(login.role, login.name)
    answers = f'\n          allow_responses {{ max: 1, expires: "{ANSWER_WITHIN}" }}' if may.answers else ""
    return f"""\
      {{ # {login.name}
        nkey: {key}
        permissions {{
          publish {{ allow: {_list(may.publish)} }}
          subscribe {{ allow: {_list(may.subscribe)} }}{answers}
        }}
      }}"""


def _list(patterns: Iterable[str]) -> str:
    lines = "".join(f"\n            {json.dumps(pattern)}" for pattern in dict.fromkeys(patterns))
    return f"[{lines}\n          ]"
