"""`agentic eval`: scenarios played against the configured model, and a table of what came of them."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from agent_service import settings
from agent_service.cli import output, whereabouts
from agent_service.cli.runs.drawing import status
from agent_service.history.plain import one_line
from agent_service.workbench.evaluation.playing import Result, evaluate, totals, trials_of
from agent_service.workbench.evaluation.scenario import Scenario, own_folder, scenarios
from groundwork.service.exits import Exit
from groundwork.service.serving import cancelled_by_signals
from schemas.values import dataclass

LONGEST_LINE = 1000
NUMBERS = ("steps", "calls", "tokens", "USD", "cached", "tasks", "broken")
WIDE = 97
"""Columns for all of these numbers beside the names. Where there are fewer, the last are left out."""
FURTHER = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    names: tuple[str, ...]
    folders: tuple[Path, ...]
    config: Path | None
    jobs: int
    trail: Path | None


async def run(order: Order, *, as_json: bool) -> Exit:
    results: list[Result] = []
    try:
        with cancelled_by_signals(lambda: output.complain("stopping")):
            await _play(order, results)
    except asyncio.CancelledError:
        if results:
            _print(order, results, as_json)
        return Exit.INTERRUPTED
    _print(order, results, as_json)
    return Exit.OK if all(result.passed for result in results) else Exit.FAILED


async def _play(order: Order, results: list[Result]) -> None:
    chosen = list(_playable(scenarios((own_folder(), *order.folders), order.names)))
    async with trials_of(chosen, settings.load(whereabouts.own(order.config))) as trials:
        with output.console(stderr=True).status(f"{len(trials)} to be played") as status:

            def tell(result: Result) -> None:
                results.append(result)
                status.update(f"{len(results)} of {len(trials)} played")

            results[:] = await evaluate(trials, jobs=order.jobs, trail=order.trail, on_result=tell)


def _playable(chosen: Sequence[Scenario]) -> Iterator[Scenario]:
    for scenario in chosen:
        if scenario.missing:
            output.complain(f"{scenario.name} is not played: {scenario.missing}")
        else:
            yield scenario


def _print(order: Order, results: Sequence[Result], as_json: bool) -> None:
    if as_json:
        output.document(_for_programs(results))
    else:
        output.draw(_heading(results), wrap=False)
        output.draw(_table(results, output.console().width))
        output.draw(*_flaws(order, results), wrap=False)


def _for_programs(results: Sequence[Result]) -> dict[str, Any]:
    return {
        "ok": all(result.passed for result in results),
        "models": _models(results),
        "scenarios": [result.for_programs() for result in results],
        "totals": totals(results),
    }


def _models(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(model for result in results for model in result.models))


def _heading(results: Sequence[Result]) -> Text:
    models = _models(results)
    scripts = [model for model in models if model.startswith("script:")]
    named = [model for model in models if model not in scripts] or ["none answered"]
    who = "each scenario's own script, which does not think" if scripts else ", ".join(named)
    return Text.assemble(("model: ", "bold"), one_line(who, LONGEST_LINE), "\n")


def _table(results: Sequence[Result], width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=True, collapse_padding=True)
    summed, shown = totals(results), NUMBERS if width >= WIDE else NUMBERS[:-FURTHER]
    table.add_column("scenario", footer=f"{summed['passed']} of {summed['scenarios']} passed", overflow="fold")
    table.add_column("ended", overflow="fold")
    for column, sum_of in zip(shown, _numbers(summed), strict=False):
        table.add_column(column, footer=sum_of, justify="right", no_wrap=True)
    for result in results:
        mark = Text("✓ ", "green") if result.passed else Text("✗ ", "red")
        numbers = _numbers({**result.for_programs(), "violations": len(result.violations)})
        table.add_row(mark + _name(result), _ended(result), *numbers[: len(shown)])
    return table


def _name(result: Result) -> Text:
    return Text(result.name.replace(f"{result.scenario}-", "  ", 1))


def _ended(result: Result) -> Text:
    if result.status == "done":
        return Text(result.status)
    said = result.ending_class if result.ending_class not in ("completed", "") else result.status
    return status(result.status, said=one_line(said, 60))


def _numbers(row: dict[str, Any]) -> tuple[str, ...]:
    cost, share = row["cost_usd"], row["cache_share"]
    return (
        str(row["steps"]),
        str(row["calls"]),
        str(row["tokens"]),
        "?" if cost is None else f"{cost:.4f}",
        "-" if share is None else f"{share:.0%}",
        str(row["tasks"]),
        str(row["violations"]),
    )


def _flaws(order: Order, results: Sequence[Result]) -> list[Text]:
    blocks = []
    for result in (result for result in results if not result.passed):
        lines = [*(f"rule broken: {line}" for line in result.violations), *result.unmet]
        heading = Text(f"\n✗ {result.name}: {one_line(result.title)}", "red")
        block = Text("\n").join([heading, *(Text(f"  {one_line(line, LONGEST_LINE)}") for line in lines)])
        blocks.append(block + Text(f"\n  look at: {_where(order, result)}", "dim"))
    return blocks


def _where(order: Order, result: Result) -> str:
    if order.trail and result.run_id:
        return str(order.trail / result.run_id)
    return f"its paper trail, with --scenario {result.scenario} --trail FOLDER"
