"""Case studies, one folder per paper, and the shared code for claims, runs and reports in `frame`."""
