"""Bytes that methods send for a model, at any number of ranks."""
