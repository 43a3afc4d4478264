"""The bytes that methods send for a model, with any number of ranks."""
