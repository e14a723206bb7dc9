"""A secret that stands in a file is changed by writing the file."""

import logging
from pathlib import Path

import pytest
from pydantic import SecretStr

from groundwork.service.json_log import set_up
from groundwork.service.secret import FileSecret
from tests.kit.logs import logging_kept
from tests.kit.waiting import wait_until

OLD, NEW = "the-old-secret-of-x", "the-new-secret-of-x"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(f"{OLD}\n", encoding="utf-8")
    return file


def changed(secret: SecretStr) -> None:
    wait_until(lambda: secret.get_secret_value() == NEW)


def test_a_secret_is_what_its_file_holds_now(file: Path) -> None:
    secret = FileSecret(file)
    assert secret == SecretStr(OLD)
    file.write_text(f"{NEW}\n", encoding="utf-8")
    changed(secret)


@pytest.mark.attack(22)
@pytest.mark.parametrize("unfit", [b"", b"\n", b"short", b"\xff\xfe\xff"], ids=["empty", "blank", "short", "no text"])
def test_what_is_no_fit_secret_is_not_taken_and_the_log_says_so(
    file: Path, unfit: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    secret = FileSecret(file)
    file.write_bytes(unfit)
    wait_until(lambda: secret.get_secret_value() and "the secret before stays" in caplog.text)
    assert secret.get_secret_value() == OLD
    file.write_text(NEW, encoding="utf-8")
    changed(secret)


@pytest.mark.attack(60)
def test_the_log_hides_a_secret_that_came_later_and_the_one_before(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = FileSecret(file)
    with logging_kept():
        set_up("WARNING", "json", redact=lambda: [secret.get_secret_value()])
        logging.getLogger("part").warning("begins")
        file.write_text(NEW, encoding="utf-8")
        changed(secret)

        def hides() -> bool:
            logging.getLogger("part").warning("%s and %s", OLD, NEW)
            return '"msg":"*** and ***"' in capsys.readouterr().err

        wait_until(hides)
