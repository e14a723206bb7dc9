"""The box of a plugin: its boundaries and limits, and the processes that start, watch and end it.

These processes (`guardhouse`, `guard`) start in milliseconds: they load only the standard library and this package.
"""
