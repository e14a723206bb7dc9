"""The command `agentic`. Commands that talk to a running agent are clients of its HTTP API and load nothing of it."""
