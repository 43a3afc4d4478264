"""Loops over many elements, as plain functions on tensors."""
