"""Every scenario holds with its own script and with its obeying one."""

from tests.cli.invoke import agentic_here


def test_every_scenario_passes_and_is_told_in_one_line_of_80_columns() -> None:
    called = agentic_here("eval", COLUMNS="80")
    assert called.code == 0, called.out
    scenarios, groups = called.out.rstrip().split("\n\n")[1:]
    heading, *rows, footer = scenarios.splitlines()
    assert heading.split() == ["scenario", "ended", "steps", "calls", "tokens", "USD", "cached"]
    assert all(row[0] == "✓" and len(row) <= 80 for row in rows)
    assert [line.split()[0] for line in groups.splitlines()[1:]] == ["recovery", "work", "people", "injections", "all"]
    assert footer.split()[:4] == [str(len(rows)), "of", str(len(rows)), "passed"]
