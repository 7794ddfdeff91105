"""Language modelling on text."""
