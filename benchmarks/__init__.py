"""Speed. Each figure is a ratio within one run, as absolute times depend more on the machine than on the code."""
