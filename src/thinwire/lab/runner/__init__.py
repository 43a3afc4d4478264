"""Training runs: plans, the processes that execute them, and resuming."""
