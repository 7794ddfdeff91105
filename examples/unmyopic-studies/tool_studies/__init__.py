"""Studies about unmyopic itself: the audit, compiled programs, what approximations miss, development.

No study imports another; what two of them need is next to them.
"""
