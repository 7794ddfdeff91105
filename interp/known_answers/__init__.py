"""Models whose answer is known: weights written down, so that an analysis can be held against the truth."""

from interp.known_answers.balanced_dyck import balanced_dyck
from interp.known_answers.lego_loop import lego_loop
from interp.known_answers.stack_dyck import stack_dyck
from interp.known_answers.uniform_dyck import uniform_dyck

__all__ = ["balanced_dyck", "lego_loop", "stack_dyck", "uniform_dyck"]
