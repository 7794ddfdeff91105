"""Random-features kernels of transformers and MLPs."""
