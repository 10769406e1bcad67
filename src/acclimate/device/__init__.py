"""A model on a device: wrapped, calibrated, taken out of a run, loaded, and in a fleet."""
