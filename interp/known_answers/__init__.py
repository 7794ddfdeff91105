"""Known answers: models with hand-written weights and a known truth about every head."""

from interp.known_answers.answers import HeadTruth, KnownAnswer
from interp.known_answers.craft.transforms import randomise
from interp.known_answers.dyck.balanced import balanced_dyck
from interp.known_answers.dyck.stack import stack_dyck
from interp.known_answers.dyck.uniform import uniform_dyck
from interp.known_answers.lego.loop import lego_loop
from interp.known_answers.lego.shortcut import lego_shortcut
from interp.known_answers.suite import SUITE, known_answer, suite
from interp.known_answers.template.copy import template_copy
from interp.known_answers.template.same import template_same

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
