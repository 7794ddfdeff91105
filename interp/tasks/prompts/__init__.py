"""Pairs of prompts that the user brings."""
