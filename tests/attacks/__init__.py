"""Attacks on the program as it runs: real processes, a real bus, real HTTP, real files. `make attack` runs them all.

How one is written:

- Any test may be an attack: `@pytest.mark.attack(98, 99)` names the cases of docs/SECURITY.md that it belongs to (or
  none). It passes when the attacker gets nothing. Its benign twin, the same done by somebody who may, stands next to it
  where that is not obvious. Tests of other folders that are attacks bear the mark where they are; those that a case
  names need none.
- A *strike* is an attack that is also made on an unprotected twin, as its negative control: an attack that the twin
  withstands shows nothing. It takes a fixture `target`, returns what the attacker got (nothing: None, False, empty),
  and asserts nothing itself; it is named after what is tried.

      @attack(3)
      async def test_a_number_that_is_none(target: ApiDoor) -> bool:
          return (await target.wake(b'{"goal": "x", "context": {"n": NaN}}')).status_code == 202

  `target` is on side `ours` or `twin`: the same client at another address. Twins are in `twins/`: what somebody
  writes who thinks of no attacker, and nothing worse.
- `stand.py` starts the program once for each worker, with callers, webhooks and tools whose secrets an attack has only
  where it says so. An attack leaves it as it was: runs and names of its own. What has to break something for good takes
  a stand of its own (`standing`).
- All together take less than three minutes on two processors. Whoever waits for a deadline makes it a short one.
"""
