"""The same job on other durable runtimes, so that anybody can compare: `make bench-peers`, docs/PERFORMANCE.md."""
