"""Hand-written weights: wiring, surgery, change of basis."""
