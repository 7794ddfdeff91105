"""Interventions on activations: replacements of heads, patching, ablation, and verification of hook points."""
