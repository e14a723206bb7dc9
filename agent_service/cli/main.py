"""The command `agentic`: twelve commands at the top, the others in groups. A command of a group also works without the
group's name."""

from collections.abc import Sequence
from typing import NoReturn

from groundwork.service import commands
from groundwork.service.commands import LazyGroup, table_of

NAME = "agentic"


class Agentic(LazyGroup):
    """Commands in the order of the help: panel, module, name and summary."""

    table = table_of(
        "agent_service",
        """
Commands
dev              workbench.dev_command  Run NATS, both services and the demo tools here, until Ctrl-C.
init             cli.init            Write a settings file: which NATS server, which model, which tools.
run              cli.runs            Start a run and wait for its end. The exit code says how it ended.
runs             cli.runs            List runs, newest first.
show             cli.runs            Show one run.
inbox            cli.control         List what waits for a person: approvals, questions, escalated runs, dead letters.
answer           cli.control         Answer the question of a run, or reopen an escalated one.
approve          cli.control         Show and approve what a run asks for; with --hash, approve that.
reject           cli.control         Reject what a run asks for; the run goes on without it.
cancel           cli.control         Cancel a run. Late results are recorded and change nothing.
doctor           cli.doctor.report   Check everything that the agent needs, and print the remedies.
serve            cli.setup           Run the agent until SIGTERM or Ctrl-C. It logs to standard error.
Groups of more commands
agent            cli.control         Control an agent: wake, signal, dismiss, stop-all, go-on, drain.
agent wake       cli.runs            Start a run and print its id. Accepted is not completed.
agent signal     cli.control         Send a run a message, resume it, or raise its budget.
agent dismiss    cli.control         Take an escalated run out of the inbox. It stays as it ended.
agent stop-all   cli.control         Stop everything: no run, model call or tool begins, also after restarts.
agent go-on      cli.control         Resume everything after `agentic stop-all`.
agent drain      cli.control         End one agent gracefully: it takes nothing new and finishes its model calls.
history          cli.runs            What a run did: tail, entries, prompt, cat, why.
history tail     cli.runs            Follow a run line by line, until it ends.
history entries  cli.runs            Print the journal of a run as it is now, one entry a line.
history prompt   cli.runs            Print one model call of a run in full: prompt, reply and outcome.
history cat      cli.runs            Print a file of a run in full: a page of its paper trail, or an artifact.
history why      cli.runs            Say why a run does not move, and what to do.
store            cli.store           The stored runs: verify, backup, restore, export, prune.
store verify     cli.store           Check that a run is unchanged: row, journal and files.
store backup     cli.store           Back up runs, ledger and artifacts into one file, while the services run.
store restore    cli.store           Restore runs, ledger and artifacts into an empty store.
store export     cli.store           Write a run and its children, or all runs, into one signed file.
store prune      cli.control         Delete runs past their retention (`agent.keep_runs`), as the agent does each hour.
bus              cli.setup           The NATS server: setup, dlq.
bus setup        cli.setup           Create the streams, consumers and buckets on the NATS server.
bus dlq          cli.control         Dead letters: ls, show, retry, drop.
keys             cli.store           The keys that authenticate the agent's data: list, rotate, retire.
lab              workbench.examples  Try things out: example, demo, eval, script.
lab example      workbench.examples  List the examples, or copy one here.
lab demo  workbench.dev_command  Play one run in a minute: a question, a kill -9, an approval. Then stop everything.
lab eval         workbench.evaluate  Play scenarios against the configured model. Exit code 1 when one did not pass.
lab script       workbench.examples  Check scripts, which play the model.
ductile          cli.setup           Add agents to a Ductile, and remove them.
""",
    )


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
