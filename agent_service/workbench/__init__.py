"""The whole stack on one machine, the demo, the benchmark, the evaluation. Nothing that runs in production is here."""
