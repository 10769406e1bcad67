"""From an experiment file to results."""
