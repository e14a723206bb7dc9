"""How long runs are kept, how they are deleted, and how one leaves as a file that proves itself."""
