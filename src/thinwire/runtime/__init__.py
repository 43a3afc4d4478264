"""What is running: a strategy on one rank, its hooks, checks and checkpoints."""
