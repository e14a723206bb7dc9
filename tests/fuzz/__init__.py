"""Our parsers accept or refuse any bytes of strangers, and do nothing else.

`targets.py` states for each parser which results are allowed; `seeds/` has start messages and every input that was
once a finding. `make test` reads the seeds and some hundred variations of each; `make fuzz SECONDS=600` lets
libFuzzer (by atheris, for CPython 3.11 to 3.13 on Linux) search for new code paths.
"""
