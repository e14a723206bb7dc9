"""The gateway and Ductile: every test here holds on a fake Ductile, and those that can on a real one."""
