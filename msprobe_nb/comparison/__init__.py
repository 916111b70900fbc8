"""Comparing two runs: matching, metrics, verdicts and what they mean."""
