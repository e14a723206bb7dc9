"""A tool call, from the request on the bus to its result: policy, admission, ledger, results, artifacts."""
