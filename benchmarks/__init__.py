"""Speed, each figure a ratio within one run: absolute times say more about the machine than about the code."""
