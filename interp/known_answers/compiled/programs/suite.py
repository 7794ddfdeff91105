"""All programs by name."""

from collections.abc import Mapping

from interp.known_answers.compiled.programs.checks import CHECKS
from interp.known_answers.compiled.programs.counts import COUNTS
from interp.known_answers.compiled.programs.fractions import FRACTIONS
from interp.known_answers.compiled.programs.moves import MOVES
from interp.known_answers.compiled.programs.orders import ORDERS
from interp.known_answers.compiled.programs.program import RaspProgram

PROGRAMS: Mapping[str, RaspProgram] = {
    program.name: program for program in (*COUNTS, *MOVES, *ORDERS, *CHECKS, *FRACTIONS)
}
"""Every program, in a fixed order."""
