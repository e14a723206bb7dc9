"""What others see of the gateway's work: lines of the log, spans, metrics."""
