"""The commands of `agentic`, in the order of the help: the panel and the module of each, and its line."""

from groundwork.service.commands import LazyGroup, table_of


class Agentic(LazyGroup):
    """The group that they are in."""

    table = table_of("""
Runs, by the API of an agent
  agent_service.cli.runs.steering
    run       Ask for a run and wait for its end. The exit code says how it ended.
    wake      Ask for a run and print its id. Accepted is not completed.
    cancel    Cancel a run. What is under way is recorded when it comes, and changes nothing.
    signal    Tell a run something, resume it, raise its budget.
    dismiss   Take an escalated run out of the inbox. It stays as it ended.
    approve   Allow what a run asks for. Without --hash it is shown, and just that is allowed.
    reject    Refuse what a run asks for: it goes on without, and is told why.
    answer    Answer the question of a run, or its escalation, which sets it going again.
    stop-all  Stop everything: no run begins, and no model call or tool, also after restarts.
    go-on     Let everything go on after `agentic stop-all`, from where it was.
    drain     Have one agent take nothing new, end what it has in hand, and then itself.
  agent_service.cli.runs.looking
    runs      List runs, newest first.
    show      Show where one run stands.
    prompt    Print one model call of a run in full: prompt, reply, and what came of it.
    inbox     List what waits for a person: paused and escalated runs, and dead letters.
    why       Say what a run waits for, since and until when, and what to do.
    tail      Tell what a run does as it goes by, until it ends, and what to do then.
    entries   Print the journal of a run as it is now, one entry a line.
    cat       Print a file of a run in full: a page of its paper trail, or an artifact.
Records and prerequisites, on this machine
  agent_service.cli.archive.commands
    verify    Check that a run is as its agent wrote it: row, journal and files. Exit code 1 when not.
    backup    Back up runs, ledger and artifacts into one file, while agent and gateway go on.
    restore   Bring back runs, ledger and artifacts, on a machine and a bus that have none.
    export    Write a run, and those that it started, or all, into one file that proves itself.
    prune     Delete the runs whose time is over by `agent.keep_runs`. The agent does it each hour.
  agent_service.cli.doctor.report
    doctor    Check everything that the agent needs, one line each, with the remedy.
  agent_service.cli.beside_ductile
    ductile   Add agents to a Ductile that is there, and take them out again.
  agent_service.cli.services.dead_letters
    dlq       Messages that could not be handled: look at them, send them again, drop them.
  agent_service.cli.archive.keys
    keys      The keys by which the agent knows its own words again: list, rotate, retire.
To try it out
  agent_service.workbench.commands
    dev       Run NATS, both services and the demo tools here, until Ctrl-C.
    example   List the examples, or copy one to where you are.
    demo      Show one run from goal to end on a real NATS server, then stop everything.
    eval      Play scenarios against the configured model. Exit code 1 when one did not pass.
  agent_service.cli.scripts
    script    Scripts, which stand in the place of a model: check them.
Services
  agent_service.cli.services.init
    init      Write a settings file: which NATS server, which model, which tools.
  agent_service.cli.services.setup
    serve     Run the agent, until SIGTERM or Ctrl-C. Its log is on standard error.
    setup     Create the streams, consumers and buckets on the NATS server.
""")
