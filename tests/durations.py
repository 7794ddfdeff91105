"""Recorded durations: which items are default, slow or long, and which are fast enough for the pass that checks shapes.

`make durations` writes `tests/durations.tsv` on an idle machine: seconds and name of every item of at least 0.1 s.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

RECORD = Path(__file__).with_name("durations.tsv")
RECORDED_FROM = 0.1
"""Seconds from which an item is recorded."""
DEFAULT_LONGEST = 0.2
"""Seconds that the fastest item of a test may take as a default one; its others are slow if they are recorded."""
SLOW_LONGEST = 1.5
"""Seconds that a slow item may take; what takes longer is long."""
NEVER_LONG = {
    "tests/examples/unmyopic_studies/test_compiled_programs.py::test_every_claim_holds_on_the_small_programs": (
        "that the study of compiled programs accepts the right graphs and refuses rewired ones"
    ),
    "tests/case_studies/frame/test_page.py::test_nothing_is_wrong_with_a_study_page": "a study's page in a browser",
    "tests/case_studies/frame/test_study.py::test_a_killed_run_keeps_its_measurements": "a killed study",
    "tests/case_studies/papers/test_papers.py::test_committed_results_are_judged_by_todays_rules": "what is shipped",
    "tests/hooks/adapters/test_families_of_transformers.py::test_each_verb_works_or_is_refused[BERT float32]": (
        "every verb on models as others write them"
    ),
    "tests/hooks/adapters/test_families_of_transformers.py::test_each_verb_works_or_is_refused[GPT-2 bfloat16]": (
        "every verb on models as others write them"
    ),
    "tests/hooks/adapters/test_families_of_transformers.py::test_each_verb_works_or_is_refused[GPT-NeoX float32]": (
        "every verb on models as others write them"
    ),
    "tests/hooks/adapters/test_families_of_transformers.py::test_each_verb_works_or_is_refused[Gemma-2 float32]": (
        "every verb on models as others write them"
    ),
    "tests/hooks/adapters/test_families_of_transformers.py::test_each_verb_works_or_is_refused[Llama float32]": (
        "every verb on models as others write them"
    ),
    "tests/interp/algorithms/test_implements.py::test_where_the_loop_has_its_values": "where variables are",
    "tests/interp/auditing/test_show_heads.py::test_a_click_shows_the_finding[400]": "an audit's page in a browser",
    "tests/interp/cli/test_cli.py::test_audit_heads_and_probes": "commands of the main analyses",
    "tests/interp/cli/test_cli.py::test_report": "the command that writes a report",
    "tests/interp/cli/test_exit_codes.py::test_output_that_cannot_be_written_is_one_line[reproduce lego --list]": (
        "a study's list into a pipe that is closed"
    ),
    "tests/interp/cli/test_exit_codes.py::test_studies_and_claims_as_json": "the list of claims for programs",
    "tests/interp/cli/test_demo.py::test_the_quick_demo_analyses_the_shipped_model": "the demo",
    "tests/interp/core/test_processes.py::test_no_process_is_left_when_the_caller_is_killed[9]": "a killed caller",
    "tests/interp/core/test_wrong_kinds.py::test_a_value_of_another_kind_is_refused_by_name": (
        "wrong arguments of every public function"
    ),
    "tests/interp/heads/test_ablate_parts.py::test_jobs_give_the_same": "ablation of parts in processes",
    "tests/interp/heads/test_own_interventions.py::test_circuits_carry_on_with_the_intervention_of_their_edges": (
        "circuits with a user's own intervention"
    ),
    "tests/interp/reporting/test_report_in_a_browser.py::test_nothing_is_wrong_with_a_report": "a report in a browser",
    "tests/interp/sweeps/test_cluster.py::test_what_a_killed_process_did_is_done_again": "a killed process of a sweep",
    "tests/interp/training/test_pathways_verbs.py::test_the_remaining_verbs_work[hybrid]": "verbs on hard-coded heads",
    "tests/test_docs.py::test_every_snippet_runs[add_an_intervention.md]": "an intervention of a user's own",
    "tests/test_docs.py::test_every_snippet_runs[README.md]": "what users see first",
    "tests/test_docs.py::test_every_snippet_runs[add_a_task.md]": "a task of a user's own in every verb",
}
"""Items that are slow, though they take longer, and what no other item notices."""


def read_durations(path: Path = RECORD) -> dict[str, float]:
    """Seconds of each recorded item, by name."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return {name: float(seconds) for seconds, name in rows}


def write_durations(seconds: Mapping[str, float], path: Path = RECORD) -> None:
    """Write the items of at least `RECORDED_FROM` seconds, sorted by name."""
    rows = [f"{seconds[name]:.1f}\t{name}" for name in sorted(seconds) if seconds[name] >= RECORDED_FROM]
    header = f"# Seconds of the items of at least {RECORDED_FROM} s, on two idle cores: `make durations`"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


def kinds_of(names: Iterable[str], recorded: Mapping[str, float]) -> dict[str, str | None]:
    """The mark of each item by how long it takes; none if it is a default one.

    Of the items of one test that are recorded, only the fastest is a default one, and only if no faster item is.
    """
    kinds: dict[str, str | None] = {}
    fastest: dict[str, str] = {}
    for name in names:
        seconds = recorded.get(name, 0.0)
        kinds[name] = "slow" if seconds > 0 else None
        if seconds > SLOW_LONGEST and name not in NEVER_LONG:
            kinds[name] = "long"
        test = name.partition("[")[0]
        if test not in fastest or seconds < recorded.get(fastest[test], 0.0):
            fastest[test] = name
    for name in fastest.values():
        if recorded.get(name, 0.0) <= DEFAULT_LONGEST:
            kinds[name] = None
    return kinds


def missing_items(root: Path, never_long: Iterable[str] = tuple(NEVER_LONG)) -> Iterator[str]:
    """Items that are recorded or never long, and no longer exist."""
    items_by_path: dict[str, list[str]] = {}
    for name in (*read_durations(root / "tests/durations.tsv"), *never_long):
        path, _, item = name.partition("::")
        items_by_path.setdefault(path, []).append(item.partition("[")[0].rpartition("::")[2])
    for path, items in items_by_path.items():
        missing = sorted(set(items) - _functions(root / path))
        if missing:
            yield f"{path} has no {', '.join(missing)}, which durations.tsv or durations.py names; run `make durations`"


def _functions(path: Path) -> set[str]:
    """Names of the functions of a file; none if there is no file."""
    if not path.is_file():
        return set()
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
