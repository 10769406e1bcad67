"""From the store to something to read."""
