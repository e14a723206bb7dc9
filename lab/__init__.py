"""Public benchmarks, played by the agent as it is: README.md. No part of the wheel."""
