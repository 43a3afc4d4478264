"""What a run records: metrics, bytes, seconds, per-layer histories and gradients."""
