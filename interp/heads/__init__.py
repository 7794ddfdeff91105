"""Attention heads: classification, ablation, attention pages, identity components."""
