"""A transformer with machine-checked decisions and a stated circuit: which wiring do interchanges support?"""
