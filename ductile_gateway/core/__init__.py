"""Every rule about calls, and nothing else: values in, values out. No clock, no I/O, no randomness, no logging."""
