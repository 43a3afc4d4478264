"""Runs: what is to be run, in which processes, how it goes on."""
