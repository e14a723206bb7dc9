"""Whatever bytes strangers send, our parsers take or refuse them, and do nothing else.

`targets.py` says for each parser what may come of it; `seeds/` has messages to begin with, for each of them, and every
input that was once a finding. `make test` reads the seeds and some hundred neighbours of each; `make fuzz SECONDS=600`
lets libFuzzer (by atheris, for CPython 3.11 to 3.13 on Linux) look for paths that nothing has taken yet.
"""
