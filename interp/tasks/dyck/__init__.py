"""Bounded Dyck languages."""
