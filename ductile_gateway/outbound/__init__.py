"""What others are told of runs: relayed events, callbacks, subscribers."""
