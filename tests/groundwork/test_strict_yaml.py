"""YAML of somebody who wants to keep us busy."""

import pytest

from groundwork.service.strict import NotYaml, parse

LEVELS = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9) if n else 'x'}]\n" for n in range(9))
MERGED = LEVELS.replace("[x]", "{a: 1}").replace("[", "{<<: [").replace("]\n", "]}\n")
IN_A_KEY = LEVELS + "? *l8\n: x\n"


@pytest.mark.attack
@pytest.mark.parametrize("bomb", [LEVELS, MERGED, IN_A_KEY], ids=["lists", "merges", "key"])
def test_aliases_that_come_to_millions_of_values_are_refused_at_once(bomb: str) -> None:
    with pytest.raises(NotYaml, match="aliases come to more than"):
        parse(bomb)
