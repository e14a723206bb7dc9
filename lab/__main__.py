"""Command line `python -m lab`; see README.md."""

import argparse
import asyncio
import importlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Group

from agent_service.cli import output
from agent_service.workbench.evaluate import report
from agent_service.workbench.evaluation.results import ConfigResults, Evaluation, read
from groundwork.service.errors import Exit, Misconfigured
from lab.bench import PERSONS, play


def main() -> int:
    given = _parser().parse_args()
    try:
        earlier = read(given.against) if given.against else []
        benchmark = importlib.import_module(f"lab.{given.benchmark}")
        wanted = {"attack": given.attack} if given.benchmark == "dojo" else {"user_model": given.user}
        tasks = list(benchmark.cases(given.suite, limit=given.limit, **wanted))
        with TemporaryDirectory(prefix="lab-") as folder:
            results = asyncio.run(
                play(
                    tasks, Path(folder), config=given.config, person=given.person, repeat=given.repeat, jobs=given.jobs
                )
            )
    except (
        Misconfigured,
        ModuleNotFoundError,
        KeyError,
    ) as error:  # KeyError: there is no such suite, domain or attack
        output.print_error(str(error))
        return Exit.MISCONFIGURED
    played = ConfigResults(label=given.config.stem if given.config else "scripts", results=results)
    ok = all(result.passed for result in results)
    facts = Evaluation(ok=ok, played=[played]).model_dump(mode="json")
    output.show(facts, Group(*report(earlier, [played], lambda _: None)), as_json=given.json)
    return Exit.OK if ok else Exit.FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab", description="Plays tasks of a public benchmark. lab/README.md"
    )
    parser.add_argument("benchmark", choices=("dojo", "tau"))
    parser.add_argument("suite", nargs="*", help="without one all of them")
    parser.add_argument("--config", type=Path, help="settings; scripts play where they name no model")
    parser.add_argument("--attack", help="of AgentDojo, such as important_instructions_no_names")
    parser.add_argument("--user", help="the model that plays the user of tau2-bench, as litellm names it")
    parser.add_argument("--person", choices=PERSONS, default="careful", help="how approvals are ruled")
    parser.add_argument("--limit", type=int, help="tasks of each suite")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--against", type=Path, help="what an earlier call printed with --json")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
