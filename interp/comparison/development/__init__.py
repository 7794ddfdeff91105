"""How a reading comes to be: analyses over the snapshots of training runs."""
