"""Attacks on the program as it runs: real processes, a real bus, real HTTP, real files. `make attack` runs them all.

How one is written:

- Any test may be an attack: `@pytest.mark.attack(98, 99)` names the cases of docs/SECURITY.md that it belongs to (or
  none). It passes when the attacker gets nothing. Its benign twin, the same done by somebody who may, stands next to it
  where that is not obvious. Tests of other folders that are attacks bear the mark where they are; those that a case
  names need none.
- A *strike* is an attack that is also made on an unprotected twin, as its negative control: an attack that the twin
  withstands shows nothing. Most are rows of a table, with the cases that they belong to and how they are done; one test
  makes them on either side, and `judge` says that each attempt got nothing of ours and something of the twin:

      "JSON under another name": ((12, 82), [Ask(headers={"Content-Type": media}) for media in MEDIA]),

      @pytest.mark.parametrize("side", SIDES)
      @pytest.mark.parametrize("asked", rows(ASKED))
      async def test_strike(door: HttpCaller, asked: list[Ask]) -> None:
          judge(door, {str(ask): await ask.gets(door) for ask in asked})

  Twins are in `twins/`: what somebody writes who thinks of no attacker, and nothing worse. docs/SECURITY.md names a row
  as `attacks/test_api.py::test_strike[JSON under another name]`.
- `stand.py` starts the program once for each worker, with callers, webhooks and tools whose secrets an attack has only
  where it says so. An attack leaves it as it was: runs and names of its own. What has to break something for good takes
  a stand of its own (`standing`).
- All together take less than three minutes on two processors. Whoever waits for a deadline makes it a short one.
"""
