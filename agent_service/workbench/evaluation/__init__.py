"""Evaluation: runs of scenarios against a model, in one process, without a bus and without real time.

The loop is the real one, over a real store; the tools, the persons and the clock are played as a scenario's file says.
What is found wrong is of two kinds: a rule of the program that was broken, whatever the model did, and an expectation
of the scenario that the model did not meet.
"""
