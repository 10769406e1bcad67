"""Runs phases and streams: seeds, workers, checkpoints."""
