"""Attention heads whose pattern is fixed instead of learned."""
