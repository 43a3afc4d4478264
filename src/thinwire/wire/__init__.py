"""Tensors as bytes: payloads and variable-length integers."""
