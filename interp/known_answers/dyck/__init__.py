"""Hand-written models of bounded Dyck."""
