"""The whole stack on one machine, the demos, the examples, the evaluation. Nothing that runs in production is here."""
