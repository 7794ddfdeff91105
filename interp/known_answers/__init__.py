"""Known answers: models with hand-written or compiled weights and a known truth about every head."""

from interp.known_answers.answers import HeadTruth as HeadTruth
from interp.known_answers.answers import KnownAnswer as KnownAnswer
from interp.known_answers.compiled.answers import read_compiled as read_compiled
from interp.known_answers.compiled.compiling import compile_program as compile_program
from interp.known_answers.compiled.packing import SHIPPED as SHIPPED
from interp.known_answers.compiled.packing import shipped_program as shipped_program
from interp.known_answers.compiled.packing import write_compiled as write_compiled
from interp.known_answers.compiled.programs.program import RaspProgram as RaspProgram
from interp.known_answers.compiled.programs.suite import PROGRAMS as PROGRAMS
from interp.known_answers.compiled.tracr import from_tracr as from_tracr
from interp.known_answers.craft.transforms import randomise as randomise
from interp.known_answers.dyck.balanced import balanced_dyck as balanced_dyck
from interp.known_answers.dyck.stack import stack_dyck as stack_dyck
from interp.known_answers.dyck.uniform import uniform_dyck as uniform_dyck
from interp.known_answers.lego.loop import lego_loop as lego_loop
from interp.known_answers.lego.shortcut import lego_shortcut as lego_shortcut
from interp.known_answers.suite import SUITE as SUITE
from interp.known_answers.suite import known_answer as known_answer
from interp.known_answers.suite import suite as suite
from interp.known_answers.task_suite import TASK_SUITE as TASK_SUITE
from interp.known_answers.task_suite import task_answer as task_answer
from interp.known_answers.task_suite import task_suite as task_suite
from interp.known_answers.template.copy import template_copy as template_copy
from interp.known_answers.template.same import template_same as template_same
