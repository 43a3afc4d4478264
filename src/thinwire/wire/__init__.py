"""Tensors as bytes: payloads, and small numbers in them."""
