"""Telemetry by OpenTelemetry: where it goes, who speaks, spans, metrics. Knows nothing of runs and tools."""
