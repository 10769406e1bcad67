"""Calibration phases: same contract as training, the model frozen; one file each."""
