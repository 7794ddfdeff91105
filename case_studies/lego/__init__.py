"""Unveiling transformers with LEGO: a synthetic reasoning task (arXiv:2206.04301)"""
