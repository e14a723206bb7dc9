"""The box of a plugin: what it may reach and use, who watches it, and what ends with it.

The processes of this room (`guardhouse`, `guard`) begin in milliseconds: they load the standard library, and nothing of
ours beside this room.
"""
