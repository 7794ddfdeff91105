"""Compiled programs, our own and other people's: transformers of which every head is known."""
