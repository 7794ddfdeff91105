"""Attention variation between models."""
