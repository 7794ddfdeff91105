"""Template tasks over abstract symbols."""
