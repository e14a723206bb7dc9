"""Admission control: quotas, rate limits and budgets of all runs."""
