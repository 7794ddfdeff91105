"""Models and measures that several studies use."""
