"""Hand-written models of template tasks."""
