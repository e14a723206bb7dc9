"""The command `agentic`. Twelve of its commands are without a group; the others may be called without the name of
theirs, too."""

from collections.abc import Sequence
from typing import NoReturn

from groundwork.service import commands
from groundwork.service.commands import LazyGroup, table_of

NAME = "agentic"


class Agentic(LazyGroup):
    """In the order of the help: the panel and the module of each command, and its line."""

    table = table_of("""
Commands
  agent_service.workbench.commands
    dev       Run NATS, both services and the demo tools here, until Ctrl-C.
  agent_service.cli.init
    init      Write a settings file: which NATS server, which model, which tools.
  agent_service.cli.runs
    run       Ask for a run and wait for its end. The exit code says how it ended.
    runs      List runs, newest first.
    show      Show where one run stands.
  agent_service.cli.people
    inbox     List what waits for a person: paused and escalated runs, and dead letters.
    answer    Answer the question of a run, or its escalation, which sets it going again.
    approve   Allow what a run asks for. Without --hash it is shown, and just that is allowed.
    reject    Refuse what a run asks for: it goes on without, and is told why.
    cancel    Cancel a run. What is under way is recorded when it comes, and changes nothing.
  agent_service.cli.doctor.report
    doctor    Check everything that the agent needs, one line each, with the remedy.
  agent_service.cli.setup
    serve     Run the agent, until SIGTERM or Ctrl-C. Its log is on standard error.
Groups of more commands
  agent_service.cli.people
    agent           Orders to an agent: wake, signal, dismiss, stop-all, go-on, drain.
  agent_service.cli.runs
    agent wake      Ask for a run and print its id. Accepted is not completed.
  agent_service.cli.people
    agent signal    Tell a run something, resume it, raise its budget.
    agent dismiss   Take an escalated run out of the inbox. It stays as it ended.
    agent stop-all  Stop everything: no run begins, and no model call or tool, also after restarts.
    agent go-on     Let everything go on after `agentic stop-all`, from where it was.
    agent drain     Have one agent take nothing new, end what it has in hand, and then itself.
  agent_service.cli.runs
    history         What a run did: tail, entries, prompt, cat, why.
    history tail    Tell what a run does as it goes by, until it ends, and what to do then.
    history entries  Print the journal of a run as it is now, one entry a line.
    history prompt  Print one model call of a run in full: prompt, reply, and what came of it.
    history cat     Print a file of a run in full: a page of its paper trail, or an artifact.
    history why     Say what a run waits for, since and until when, and what to do.
  agent_service.cli.store
    store           The runs that are kept: verify, backup, restore, export, prune.
    store verify    Check that a run is as its agent wrote it: row, journal and files. Exit code 1 when not.
    store backup    Back up runs, ledger and artifacts into one file, while agent and gateway go on.
    store restore   Bring back runs, ledger and artifacts, on a machine and a bus that have none.
    store export    Write a run, and those that it started, or all, into one file that proves itself.
  agent_service.cli.people
    store prune     Delete the runs whose time is over by `agent.keep_runs`. The agent does it each hour.
  agent_service.cli.setup
    bus             The NATS server: setup, dlq.
    bus setup       Create the streams, consumers and buckets on the NATS server.
  agent_service.cli.people
    bus dlq         Messages that could not be handled: look at them, send them again, drop them.
  agent_service.cli.keys
    keys            The keys by which the agent knows its own words again: list, rotate, retire.
  agent_service.workbench.commands
    lab             To try it out: example, demo, eval, script.
    lab example     List the examples, or copy one to where you are.
    lab demo        Play one run in a minute: a question, a kill -9, an approval. Then stop everything.
    lab eval        Play scenarios against the configured model. Exit code 1 when one did not pass.
  agent_service.cli.scripts
    lab script      Scripts, which stand in the place of a model: check them.
  agent_service.cli.beside_ductile
    ductile         Add agents to a Ductile that is there, and take them out again.
""")


app = commands.program(
    NAME,
    Agentic,
    """Durable, goal-directed runs on a NATS bus.

    Begin with `agentic dev`, or `agentic init`. Exit codes are in docs/CONFIGURATION.md.

    What messages name as docs/… is at https://github.com/agentic-loop/agentic-loop/tree/main/docs
    """,
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command line. Raises SystemExit; unknown errors stay."""
    commands.run(app, NAME, arguments)
