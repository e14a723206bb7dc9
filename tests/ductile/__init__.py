"""The gateway and Ductile. All tests hold on a fake Ductile, many also on a real one."""
