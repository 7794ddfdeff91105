"""Training: loop, settings, run folders, sweeps, pretrained starts."""
