"""Tasks: data sets, models, and how to train them."""
