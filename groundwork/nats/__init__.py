"""NATS: connection, publishing, consuming, streams, buckets, leases."""
