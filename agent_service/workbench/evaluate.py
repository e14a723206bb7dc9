"""`agentic eval`: plays scenarios against the configured models and prints tables of the results."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_service import settings
from agent_service.cli import output
from agent_service.cli.options import local_command
from agent_service.cli.output import Output
from agent_service.cli.render import status
from agent_service.history.text import one_line
from agent_service.models.settings import open_model
from agent_service.workbench.evaluation.results import ConfigResults, Evaluation, Rates, Result, read
from agent_service.workbench.evaluation.scenario import SHIPPED_SCENARIOS, scenarios
from agent_service.workbench.evaluation.trials import evaluate, trials_of
from groundwork.service.commands import option
from groundwork.service.config_file import nearby
from groundwork.service.errors import Exit, Misconfigured
from groundwork.service.program import installed_version
from groundwork.service.serving import cancelled_by_signals
from schemas.status import counted

LONGEST_LINE = 1000
LINE: Any = {"no_wrap": True, "overflow": "ignore"}
COUNTS = {"effort", "prompt"}
"""Model settings that change the figures."""
TEXTS = ("scenario", "group", "model", "ended")
TOKENS_PER_RUN = 21_000
"""Average of the shipped scenarios, from docs/EVALUATION.md."""

commands = typer.Typer()


@local_command(
    commands,
    "agentic eval",
    "agentic eval --config agentic.yaml --scenario 'injection-*'",
    "agentic eval --config claude.yaml --config local.yaml --repeat 5",
    "agentic eval --config claude.yaml --repeat 5 --against before.json",
    name="eval",
)
async def evaluation(
    scenario: list[str] | None = option("Only these: a name, or a pattern like 'injection-*'.", metavar="NAME"),
    folder: list[Path] | None = option(
        "A folder with scenarios of your own, besides.", exists=True, file_okay=False, metavar="FOLDER"
    ),
    config: list[Path] | None = option(
        "The configuration file; several are compared. Without it: ./agentic.yaml, if there is one.", metavar="FILE"
    ),
    repeat: int = option("How often each scenario is played.", default=1, min=1, metavar="TIMES"),
    against: Path | None = option("Compare with what an earlier call printed with --json.", metavar="FILE"),
    jobs: int = option("Scenarios at a time.", default=4, min=1),
    trail: Path | None = option("Write the paper trail of every run there.", metavar="FOLDER"),
) -> Output:
    """A real model costs money. Bus, tools, people and time are simulated."""
    earlier = read(against) if against else []
    if trail:
        _make(trail)
    played: list[ConfigResults] = []

    def trail_of(one: ConfigResults) -> Path | None:
        return trail / one.label if trail and len(config or ()) > 1 else trail

    code = Exit.INTERRUPTED
    with suppress(asyncio.CancelledError), cancelled_by_signals(lambda: output.print_error("stopping")):
        found = scenarios((SHIPPED_SCENARIOS, *(folder or ())), scenario or ())
        for skipped in (one for one in found if one.missing):
            needs = ", ".join(skipped.missing)
            output.print_error(f"{skipped.name} is not played: there is no Python module {needs}")
        for named in config or (None,):
            loaded = settings.load(file := nearby(named))
            about = {"version": installed_version(), "phases": loaded.phases, **loaded.model.model_dump(include=COUNTS)}
            played.append(one := ConfigResults(label=file.stem if file else "scripts", about=about, results=[]))
            async with open_model(loaded.model) as model:
                trials = trials_of([one for one in found if not one.missing], loaded, model, repeat)
                if loaded.model.provider != "scripted":
                    tokens = f"{len(trials) * TOKENS_PER_RUN / 1e6:.1f} million tokens"
                    output.print_error(
                        f"{one.label}: {counted(len(trials), 'runs')} to play, which may take some {tokens}"
                    )
                with output.console(stderr=True).status(f"{len(trials)} to be played") as line:

                    def show(result: Result, results: list[Result] = one.results, total: int = len(trials)) -> None:
                        results.append(result)
                        line.update(f"{len(results)} of {total} played")

                    one.results[:] = await evaluate(trials, jobs=jobs, trail=trail_of(one), on_result=show)
        code = Exit.OK if all(result.passed for one in played for result in one.results) else Exit.FAILED
    facts = Evaluation(ok=code == Exit.OK, played=played)
    return Output(facts.model_dump(mode="json"), Group(*report(earlier, played, trail_of)), code)


def _make(trail: Path) -> None:
    try:
        trail.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misconfigured(f"--trail {trail} cannot be made: {error.strerror}") from None


def report(
    earlier: Sequence[ConfigResults], now: Sequence[ConfigResults], trail_of: Callable[[ConfigResults], Path | None]
) -> Iterator[RenderableType]:
    played = [one for one in (*earlier, *now) if one.results]
    for one in played:
        models = dict.fromkeys(model for result in one.results for model in result.models)
        is_script = any(model.startswith("script:") for model in models)
        who = "each scenario's own script, which does not think" if is_script else ", ".join(models) or "none answered"
        label = "model: " if len(played) == 1 else f"{one.label}: "
        effort = f", effort {one.about['effort']}" if one.about.get("effort") else ""
        yield Text.assemble((label, "bold"), one_line(who, LONGEST_LINE), effort, **LINE)
    if len(played) == 1:
        yield from ("", _scenarios(played[0]))
    elif len(played) > 1:
        yield from _differing(played)
    if played:
        yield from ("", _groups(played))
    for one in now:
        yield from _unmet(one, trail_of(one), f"{one.label}: " if len(now) > 1 else "")


def _table(columns: Sequence[str], footers: Sequence[str] = ()) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold", show_footer=bool(footers), collapse_padding=True)
    for column, footer in zip_longest(columns, footers, fillvalue=""):
        is_text = column in TEXTS
        made.add_column(column, footer, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    return made


def _scenarios(played: ConfigResults) -> Table:
    columns = ("scenario", "ended", "steps", "calls", "tokens", "USD", "cached")
    table = _table(columns, (f"{_passed(played.results)} passed", "", *_numbers(played.results, sum)))
    for name, results in played.by_name.items():
        shown = next((result for result in results if not result.passed), results[0])
        mark = Text("✓ ", "green") if shown.passed else Text("✗ ", "red")
        times = f"{_passed(results)} " if len(results) > 1 else ""
        row = mark + Text(times + name.replace(f"{shown.scenario}-", "  ", 1))
        table.add_row(row, _ended(shown), *_numbers(results, fmean))
    return table


def _passed(results: Sequence[Result]) -> str:
    return f"{sum(result.passed for result in results)} of {len(results)}"


def _ended(result: Result) -> Text:
    if result.status == "done":
        return Text(result.status)
    ending = result.ending_class if result.ending_class not in ("completed", "") else result.status
    return status(result.status, label=one_line(ending, 60))


def _numbers(results: Sequence[Result], of: Callable[[Iterable[float]], float]) -> Iterator[str]:
    for name in ("steps", "calls", "tokens"):
        yield f"{of(getattr(result, name) for result in results):.0f}"
    costs = [result.cost_usd for result in results if result.cost_usd is not None]
    yield f"{of(costs):.4f}" if len(costs) == len(results) else "?"
    sent, cached = (sum(getattr(one, name) for one in results) for name in ("input_tokens", "cache_read_tokens"))
    yield f"{cached / sent:.0%}" if sent else "-"


def _groups(played: Sequence[ConfigResults]) -> Table:
    """One row per group and configuration. Tokens, seconds and USD of all runs are divided by the runs that passed."""
    columns = ("passed", "rate", "95 %", "pass^k", "tokens", "seconds", "USD")
    table = _table(("group", *columns) if len(played) == 1 else ("group", "model", *columns, "difference"))
    for group in dict.fromkeys(group for one in played for group in one.rates):
        first = played[0].rates.get(group)
        for one in (one for one in played if group in one.rates):
            cells, difference = _rates(rates := one.rates[group]), ""
            if first and one is not played[0]:
                more, (low, high) = rates.since(first)
                difference = f"{more:+.0%} ({low:+.0%} to {high:+.0%})"
            table.add_row(group, *cells if len(played) == 1 else (one.label, *cells, difference))
    return table


def _rates(rates: Rates) -> Iterator[str]:
    yield from (f"{rates.passed} of {rates.runs}", f"{rates.rate:.0%}", f"{rates.low:.0%}-{rates.high:.0%}")
    yield f"k={rates.k} {rates.pass_k:.0%}"
    for value, form in ((rates.tokens, ".0f"), (rates.seconds, ".1f"), (rates.cost_usd, ".4f")):
        yield "-" if value is None else format(value, form)


def _differing(played: Sequence[ConfigResults]) -> Iterator[RenderableType]:
    """Scenarios whose pass rate differs between configurations."""
    table = _table(("scenario", *(one.label for one in played)))
    for name in dict.fromkeys(name for one in played for name in one.by_name):
        runs = [one.by_name.get(name, []) for one in played]
        if len({fmean(result.passed for result in each) for each in runs if each}) > 1:
            table.add_row(name, *(_passed(each) for each in runs))
    if table.rows:
        yield from ("", table)


def _unmet(played: ConfigResults, trail: Path | None, label: str) -> Iterator[Text]:
    for name, results in played.by_name.items():
        failed = [result for result in results if not result.passed]
        for shown in failed[:1]:
            runs = f" ({len(failed)} of {len(results)} runs)" if len(results) > 1 else ""
            yield Text(f"\n✗ {label}{name}{runs}: {one_line(shown.title)}", "red", **LINE)
            yield from (Text(f"  {one_line(line, LONGEST_LINE)}", **LINE) for line in shown.unmet)
            advice = f"its paper trail, with --scenario {shown.scenario} --trail FOLDER"
            yield Text(f"  look at: {trail / shown.run_id if trail and shown.run_id else advice}", "dim", **LINE)
