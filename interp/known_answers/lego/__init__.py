"""Hand-written models of LEGO."""
