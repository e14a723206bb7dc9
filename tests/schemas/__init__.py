"""Tests of the contract: models, names, and generated documents."""
