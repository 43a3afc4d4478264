"""Loops over many elements, as plain functions on tensors; compiled where that pays."""
