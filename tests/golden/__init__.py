"""Wire bytes that were frozen: whoever has saved or still sends them must be understood."""
