"""Interventions on activations, and the checks that they take effect."""
