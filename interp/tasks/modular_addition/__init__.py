"""Modular addition: sums of two numbers modulo p."""
