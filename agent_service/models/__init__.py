"""Models: who is asked, what is told, what may be replied, what it costs, and what a failure leads to."""
