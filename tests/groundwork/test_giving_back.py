"""Room that a file has and nothing needs: it is cut off bit by bit, while others write."""

from pathlib import Path

from groundwork.sqlite.file import SqliteFile, open_file
from groundwork.sqlite.reserve import CUT_OFF_AT_ONCE, SPARE_PAGES

PAGE = 4096
ROWS = SPARE_PAGES + 3 * CUT_OFF_AT_ONCE


async def _fill_and_empty(file: SqliteFile) -> None:
    await file.write(lambda to: to.executemany("INSERT INTO t VALUES (zeroblob(4000))", [()] * ROWS))
    await file.write(lambda to: to.execute("DELETE FROM t"))


async def test_a_file_shrinks_step_by_step_to_what_it_holds_and_some_spare_pages(tmp_path: Path) -> None:
    migrations, path = tmp_path / "migrations", tmp_path / "some.db"
    migrations.mkdir()
    (migrations / "0001_initial.sql").write_text("CREATE TABLE t (v BLOB);")
    async with open_file(path, migrations) as file:
        await _fill_and_empty(file)
        assert await file.used() < 10 * PAGE
        steps = 1
        while await file.shrink():
            steps += 1
        assert steps <= 4
    assert path.stat().st_size <= (SPARE_PAGES + 10) * PAGE
