"""LEGO: chains of group operations."""
