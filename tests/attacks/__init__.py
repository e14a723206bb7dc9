"""Attacks on the running program: real processes, a real bus, real HTTP, real files. `make attack` runs them all.

Rules for attacks:

- Any test may be an attack: `@pytest.mark.attack(98, 99)` names its cases of docs/SECURITY.md (or none). It passes when
  the attacker gets nothing. Its benign twin, the same action by a permitted caller, stands next to it unless obvious.
  Attacks in other folders bear the mark where they are; those that a case names need none.
- A *strike* is an attack that is also made on an unprotected twin, as its negative control: an attack that the twin
  withstands shows nothing. Most are rows of a table, with their cases and what is done; one test makes them on both
  sides, and `judge` checks that each attempt failed on ours and succeeded on the twin:

      "JSON under another name": ((12, 82), [Ask(headers={"Content-Type": media}) for media in MEDIA]),

      @pytest.mark.parametrize("side", SIDES)
      @pytest.mark.parametrize("asked", rows(ASKED))
      async def test_strike(caller: HttpCaller, asked: list[Ask]) -> None:
          judge(caller, {str(ask): await ask.gets(caller) for ask in asked})

  `twins/` has code written without a thought of attackers, and nothing worse. docs/SECURITY.md names a row as
  `attacks/test_api.py::test_strike[JSON under another name]`.
- `services.py` starts the program once per worker, with callers, webhooks and tools whose secrets an attack uses only
  where it says so. An attack leaves it unchanged, with runs and names of its own. An attack that breaks something for
  good uses its own services (`running_services`).
- All attacks together take less than three minutes on two processors. Deadlines that are waited for are short.
"""
