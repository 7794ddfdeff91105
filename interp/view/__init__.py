"""Arrays in, figure or self-contained HTML out. Nothing here knows a result or a task."""
