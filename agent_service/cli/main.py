"""The command `agentic`: twelve commands at the top, the others in groups. A command of a group also works without the
group's name."""

from collections.abc import Sequence
from typing import NoReturn

from groundwork.service import commands
from groundwork.service.commands import LazyGroup, table_of

NAME = "agentic"


class Agentic(LazyGroup):
    """Commands in the order of the help: panel, module, name and summary."""

    table = table_of("""
Commands
  agent_service.workbench.dev_command
    dev       Run NATS, both services and the demo tools here, until Ctrl-C.
  agent_service.cli.init
    init      Write a settings file: which NATS server, which model, which tools.
  agent_service.cli.runs
    run       Start a run and wait for its end. The exit code says how it ended.
    runs      List runs, newest first.
    show      Show one run.
  agent_service.cli.control
    inbox     List what waits for a person: approvals, questions, escalated runs, dead letters.
    answer    Answer the question of a run, or reopen an escalated one.
    approve   Show and approve what a run asks for; with --hash, approve that.
    reject    Reject what a run asks for; the run goes on without it.
    cancel    Cancel a run. Late results are recorded and change nothing.
  agent_service.cli.doctor.report
    doctor    Check everything that the agent needs, and print the remedies.
  agent_service.cli.setup
    serve     Run the agent until SIGTERM or Ctrl-C. It logs to standard error.
Groups of more commands
  agent_service.cli.control
    agent           Control an agent: wake, signal, dismiss, stop-all, go-on, drain.
  agent_service.cli.runs
    agent wake      Start a run and print its id. Accepted is not completed.
  agent_service.cli.control
    agent signal    Send a run a message, resume it, or raise its budget.
    agent dismiss   Take an escalated run out of the inbox. It stays as it ended.
    agent stop-all  Stop everything: no run, model call or tool begins, also after restarts.
    agent go-on     Resume everything after `agentic stop-all`.
    agent drain     End one agent gracefully: it takes nothing new and finishes its model calls.
  agent_service.cli.runs
    history         What a run did: tail, entries, prompt, cat, why.
    history tail    Follow a run line by line, until it ends.
    history entries  Print the journal of a run as it is now, one entry a line.
    history prompt  Print one model call of a run in full: prompt, reply and outcome.
    history cat     Print a file of a run in full: a page of its paper trail, or an artifact.
    history why     Say why a run does not move, and what to do.
  agent_service.cli.store
    store           The stored runs: verify, backup, restore, export, prune.
    store verify    Check that a run is unchanged: row, journal and files.
    store backup    Back up runs, ledger and artifacts into one file, while the services run.
    store restore   Restore runs, ledger and artifacts into an empty store.
    store export    Write a run and its children, or all runs, into one signed file.
  agent_service.cli.control
    store prune     Delete runs past their retention (`agent.keep_runs`), as the agent does each hour.
  agent_service.cli.setup
    bus             The NATS server: setup, dlq.
    bus setup       Create the streams, consumers and buckets on the NATS server.
  agent_service.cli.control
    bus dlq         Dead letters: ls, show, retry, drop.
  agent_service.cli.store
    keys            The keys that authenticate the agent's data: list, rotate, retire.
  agent_service.workbench.examples
    lab             Try things out: example, demo, eval, script.
    lab example     List the examples, or copy one here.
  agent_service.workbench.dev_command
    lab demo        Play one run in a minute: a question, a kill -9, an approval. Then stop everything.
  agent_service.workbench.evaluate
    lab eval        Play scenarios against the configured model. Exit code 1 when one did not pass.
  agent_service.workbench.examples
    lab script      Check scripts, which play the model.
  agent_service.cli.setup
    ductile         Add agents to a Ductile, and remove them.
""")


app = commands.program(
    NAME,
    Agentic,
    """Durable, goal-directed runs on a NATS bus.

    Begin with `agentic dev`, or `agentic init`. Exit codes are in docs/CONFIGURATION.md.

    Pages named docs/… are at https://github.com/agentic-loop/agentic-loop/tree/main/docs
    """,
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Raises SystemExit; unexpected errors propagate."""
    commands.run(app, NAME, arguments)
