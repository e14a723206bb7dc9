"""Every rule about runs, and nothing else: values in, values out. No clock, no I/O, no randomness, no logging.

Read `waiting` and `events` first, then `decide` with its table. Its rules are in `model` (calls and replies), `tools`
(requests, results, continuations, grants of children), `people` (approvals and answers) and `endings`.
"""
