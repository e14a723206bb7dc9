"""What only a real Ductile can show: that it is no kinder to its jobs when it is asked to stop than when it crashes."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ductile.calling import awaited, called, finished, logged
from tests.ductile.conftest import NO_BINARY
from tests.ductile.real import RealDuctile

pytestmark = [
    pytest.mark.ductile,
    pytest.mark.skipif(not os.environ.get("DUCTILE_BIN"), reason=NO_BINARY),
]


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealDuctile]:
    (tmp_path / "ductile").mkdir()
    ductile = RealDuctile(os.environ["DUCTILE_BIN"], tmp_path / "ductile")
    yield ductile
    ductile.close()


def test_a_job_that_ended_while_ductile_was_asked_to_stop_runs_once_more(real: RealDuctile, tmp_path: Path) -> None:
    """Its completion is written with what has been cancelled already, so the next start finds it running."""
    job_id = called(real, do="hold", until=str(tmp_path / "released"))
    awaited(lambda: len(real.executions), lambda count: count == 1)
    stopping = threading.Thread(target=real.stop)
    stopping.start()
    (tmp_path / "released").touch()
    stopping.join()
    real.start()
    assert finished(real, job_id)["status"] == "succeeded"
    assert [one.attempt for one in real.executions] == [1, 2]
    assert logged(real, job_id=job_id)[0]["attempt"] == 2
