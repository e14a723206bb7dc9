"""The commands around a service: its settings, its streams, its start, and what nobody could handle."""
