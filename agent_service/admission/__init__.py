"""Admission: what may begin, how fast models are asked, and what may be spent."""
