__version__ = "0.1.0"  # of the package; ranks with different ones cannot train together
