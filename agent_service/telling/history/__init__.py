"""A run as a timeline: what it did, from when until when."""
