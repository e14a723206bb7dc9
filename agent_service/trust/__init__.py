"""Trust: who asked for something, and which results, signatures and artifacts are believed."""
