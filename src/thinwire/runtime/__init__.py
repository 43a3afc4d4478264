"""Runs a strategy on one rank: hooks, checks, failed ranks, checkpoints, averages."""
