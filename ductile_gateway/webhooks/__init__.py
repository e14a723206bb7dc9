"""Events from outside, and what others are told of runs: webhooks and relayed events, in and out."""
