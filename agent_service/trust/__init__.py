"""Trust: identities of callers, and authentication of results, signatures and artifacts."""
