"""Tool calls, from the request on the bus to the result: policy, admission, ledger, results, artifacts."""
