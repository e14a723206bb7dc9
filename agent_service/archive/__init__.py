"""Runs as they are kept: verified, written into archives, restored, and deleted when their time is over."""
