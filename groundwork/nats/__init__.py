"""The NATS bus: the link, publishing, the pull loop and what becomes of its messages, streams, leases, buckets."""
