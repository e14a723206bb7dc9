"""The same job on other durable runtimes, for comparison: `make bench-peers`, docs/PERFORMANCE.md."""
