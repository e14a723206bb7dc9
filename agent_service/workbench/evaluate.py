"""`agentic eval`: scenarios played against the configured model, and a table of what came of them."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_service import settings
from agent_service.cli import output, whereabouts
from agent_service.cli.render import status
from agent_service.history.plain import one_line
from agent_service.workbench.evaluation.playing import Result, evaluate, totals, trials_of
from agent_service.workbench.evaluation.scenario import own_folder, scenarios
from groundwork.service.errors import Exit
from groundwork.service.serving import cancelled_by_signals

LONGEST_LINE = 1000


async def run(
    names: Sequence[str], folders: Sequence[Path], config: Path | None, *, jobs: int, trail: Path | None
) -> output.Outcome:
    results: list[Result] = []
    code = Exit.INTERRUPTED
    with suppress(asyncio.CancelledError), cancelled_by_signals(lambda: output.complain("stopping")):
        found = scenarios((own_folder(), *folders), names)
        for scenario in (one for one in found if one.missing):
            needs = ", ".join(scenario.missing)
            output.complain(f"{scenario.name} is not played: there is no Python module {needs}")
        chosen, loaded = [one for one in found if not one.missing], settings.load(whereabouts.own(config))
        async with trials_of(chosen, loaded) as trials:
            with output.console(stderr=True).status(f"{len(trials)} to be played") as told:

                def tell(result: Result) -> None:
                    results.append(result)
                    told.update(f"{len(results)} of {len(trials)} played")

                results[:] = await evaluate(trials, jobs=jobs, trail=trail, on_result=tell)
        code = Exit.OK if all(result.passed for result in results) else Exit.FAILED
    facts = {
        "ok": code == Exit.OK,
        "models": _models(results),
        "scenarios": [result.for_programs() for result in results],
        "totals": totals(results),
    }
    return output.Outcome(facts, Group(_heading(results), _table(results), *_unmet(results, trail)), code)


def _models(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(model for result in results for model in result.models))


def _heading(results: Sequence[Result]) -> RenderableType:
    models = _models(results)
    is_script = any(model.startswith("script:") for model in models)
    who = "each scenario's own script, which does not think" if is_script else ", ".join(models) or "none answered"
    return _line(Text.assemble(("model: ", "bold"), one_line(who, LONGEST_LINE), "\n"))


def _line(text: Text) -> Text:
    """One line, however long."""
    text.no_wrap, text.overflow = True, "ignore"
    return text


def _table(results: Sequence[Result]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=True, collapse_padding=True)
    summed = totals(results)
    table.add_column("scenario", footer=f"{summed['passed']} of {summed['scenarios']} passed", overflow="fold")
    table.add_column("ended", overflow="fold")
    for column, sum_of in _numbers(summed).items():
        table.add_column(column, footer=sum_of, justify="right", no_wrap=True)
    for result in results:
        mark = Text("✓ ", "green") if result.passed else Text("✗ ", "red")
        name = result.name.replace(f"{result.scenario}-", "  ", 1)
        table.add_row(mark + Text(name), _ended(result), *_numbers(result.for_programs()).values())
    return table


def _ended(result: Result) -> Text:
    if result.status == "done":
        return Text(result.status)
    said = result.ending_class if result.ending_class not in ("completed", "") else result.status
    return status(result.status, said=one_line(said, 60))


def _numbers(row: dict[str, Any]) -> dict[str, str]:
    cost, share = row.get("cost_usd", 0.0), row["cache_share"]
    return {
        **{name: str(row.get(name, 0)) for name in ("steps", "calls", "tokens")},
        "USD": "?" if cost is None else f"{cost:.4f}",
        "cached": "-" if share is None else f"{share:.0%}",
    }


def _unmet(results: Sequence[Result], trail: Path | None) -> Iterator[Text]:
    for result in (result for result in results if not result.passed):
        yield _line(Text(f"\n✗ {result.name}: {one_line(result.title)}", "red"))
        yield from (_line(Text(f"  {one_line(line, LONGEST_LINE)}")) for line in result.unmet)
        advice = f"its paper trail, with --scenario {result.scenario} --trail FOLDER"
        yield _line(Text(f"  look at: {trail / result.run_id if trail and result.run_id else advice}", "dim"))
