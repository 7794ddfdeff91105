"""Models whose answer is known: weights written down, so that an analysis can be held against the truth."""

from interp.known_answers.answers import HeadTruth, KnownAnswer
from interp.known_answers.balanced_dyck import balanced_dyck
from interp.known_answers.lego_loop import lego_loop
from interp.known_answers.lego_shortcut import lego_shortcut
from interp.known_answers.randomise import randomise
from interp.known_answers.stack_dyck import stack_dyck
from interp.known_answers.suite import SUITE, known_answer, suite
from interp.known_answers.template_copy import template_copy
from interp.known_answers.template_same import template_same
from interp.known_answers.uniform_dyck import uniform_dyck

__all__ = [
    "SUITE",
    "HeadTruth",
    "KnownAnswer",
    "balanced_dyck",
    "known_answer",
    "lego_loop",
    "lego_shortcut",
    "randomise",
    "stack_dyck",
    "suite",
    "template_copy",
    "template_same",
    "uniform_dyck",
]
