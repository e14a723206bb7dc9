"""Files of a service belong to it, whoever writes them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from groundwork.service import store_folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes into folders of others")
@pytest.mark.parametrize("write", [store_folder.write, store_folder.create])
def test_what_root_writes_into_the_folder_of_a_service_is_the_services(
    write: Callable[[Path, str], None], tmp_path: Path
) -> None:
    os.chown(tmp_path, 12345, 12346)
    write(tmp_path / "keys", "a secret")
    found = (tmp_path / "keys").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12345, 12346, 0o600)
