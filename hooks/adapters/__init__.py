"""Models of other libraries under our hook names."""
