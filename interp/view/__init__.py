"""Charts and self-contained HTML pages from arrays and tables, independent of results and tasks."""
