"""What the engine costs, measured against plain PyTorch: `python -m benchmarks`."""
