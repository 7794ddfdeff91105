"""API reference pages, one for each thing that a user does, generated from the public names of `hooks` and `interp`."""

import importlib
import inspect
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

from interp.core.results import Result

PACKAGES = (
    "interp",
    "interp.tasks",
    "interp.training",
    "interp.sweeps",
    "interp.evaluation",
    "interp.probing",
    "interp.heads",
    "interp.auditing",
    "interp.algorithms",
    "interp.comparison",
    "interp.theory",
    "interp.known_answers",
    "hooks",
    "hooks.interventions",
)
"""Packages whose public names are described. A name in several of them is described under the first."""


@dataclass(frozen=True)
class Group:
    """One page of the reference."""

    file: str
    title: str
    modules: tuple[str, ...]
    """Names of modules or packages: the page describes the public names that are defined in them."""


GROUPS = (
    Group("tasks", "Tasks: the contract", ("interp.tasks.base", "interp.tasks.batch")),
    Group(
        "own_tasks", "Tasks: check and register", ("interp.tasks.check", "interp.tasks.registry", "interp.tasks.vocab")
    ),
    Group("lego", "Tasks: LEGO", ("interp.tasks.lego.task", "interp.tasks.lego")),
    Group("dyck", "Tasks: bounded Dyck", ("interp.tasks.dyck",)),
    Group("template", "Tasks: templates", ("interp.tasks.template",)),
    Group("text", "Tasks: text and prompts", ("interp.tasks.text", "interp.tasks.prompts")),
    Group(
        "lookup",
        "Tasks: lookup, addition, indirect objects",
        ("interp.tasks.in_context_lookup", "interp.tasks.modular_addition", "interp.tasks.indirect_object"),
    ),
    Group("transformers", "Models: transformers", ("hooks.model.transformer", "hooks.model.config", "hooks.model")),
    Group(
        "other_models",
        "Models: encoders and baselines",
        ("hooks.model.encoder", "hooks.model.fully_connected", "hooks.model.recurrent"),
    ),
    Group("hardcoded", "Models: hard-coded heads", ("hooks.model.hardcoded", "hooks.model.embeddings")),
    Group(
        "bring",
        "Models of other libraries",
        ("interp.training.load", "interp.training.pretrained", "hooks.adapters", "interp.core.verbs"),
    ),
    Group("interventions", "Interventions, and their check", ("hooks.interventions",)),
    Group(
        "training",
        "Training a model",
        ("interp.training.train", "interp.training.settings", "interp.training.run", "interp.training"),
    ),
    Group("sweeps", "Training many models", ("interp.sweeps.sweep", "interp.sweeps")),
    Group("evaluation", "Accuracy, perplexity, extrapolation", ("interp.evaluation", "interp.theory.signs")),
    Group(
        "probing",
        "Probing: what can be read, is it used",
        ("interp.probing.probe", "interp.auditing.probes", "interp.probing"),
    ),
    Group(
        "heads",
        "Heads: labels and attention",
        ("interp.heads.classify", "interp.heads.kinds", "interp.heads.show", "interp.heads.diagonals"),
    ),
    Group("effects", "Heads: ablation, edges, logit attribution", ("interp.heads",)),
    Group("audit", "Auditing heads", ("interp.auditing",)),
    Group(
        "algorithms",
        "Testing an algorithm",
        ("interp.algorithms.implements", "interp.algorithms.result", "interp.core.interchange", "interp.algorithms"),
    ),
    Group(
        "comparison",
        "Comparing models and steps of training",
        ("interp.comparison.variation", "interp.comparison.over_training", "interp.comparison"),
    ),
    Group("balance", "Theory: balance and kernels", ("interp.theory.balance", "interp.theory.kernels")),
    Group("pruning", "Theory: pruning and shared matrices", ("interp.theory.pruning",)),
    Group(
        "known_answers",
        "Models with known answers",
        ("interp.known_answers.suite", "interp.known_answers.task_suite", "interp.known_answers"),
    ),
    Group("compiled", "Compiled programs", ("interp.known_answers.compiled",)),
    Group("reporting", "Reports", ("interp.reporting",)),
)
"""The pages, in the order of the reference. Of several that fit a module, the one with the longest name has it."""


@dataclass(frozen=True)
class Entry:
    """A public name."""

    package: str
    name: str
    value: Any


def public_names(package: ModuleType) -> dict[str, Any]:
    """The public functions and classes of a package, by name."""
    listed = getattr(package, "__all__", [name for name in vars(package) if not name.startswith("_")])
    values = {name: getattr(package, name) for name in listed}
    return {
        name: value
        for name, value in values.items()
        if callable(value)  # neither modules nor tables of names
    }


def entries_by_group() -> dict[Group, list[Entry]]:
    """The public names of each page: module by module, functions first.

    Raises:
        LookupError: no page has a name's module.
    """
    # Every object once, under the first package that has it
    entries: dict[int, Entry] = {}
    for package in PACKAGES:
        for name, value in public_names(importlib.import_module(package)).items():
            entries.setdefault(id(value), Entry(package, name, value))
    by_group: dict[Group, list[Entry]] = {group: [] for group in GROUPS}
    for entry in entries.values():
        by_group[_group_of(entry)[0]].append(entry)
    for group_entries in by_group.values():
        group_entries.sort(key=lambda entry: (_group_of(entry)[1], inspect.isclass(entry.value)))
    return by_group


def _group_of(entry: Entry) -> tuple[Group, tuple[int, str]]:
    """The page of a name, and where its module comes there."""
    module = entry.value.__module__
    matches = [
        (len(prefix), group, index)
        for group in GROUPS
        for index, prefix in enumerate(group.modules)
        if f"{module}.".startswith(f"{prefix}.")
    ]
    if not matches:
        raise LookupError(f"no page of docs/_ext/api_pages.py has {entry.package}.{entry.name}, of {module}.")
    _, group, index = max(matches, key=lambda match: match[0])
    return group, (index, module)


def page(group: Group, entries: list[Entry]) -> str:
    """The reST source of a page: a table of its names, and each of them."""
    parts = [f"{group.title}\n{'=' * len(group.title)}"]
    rows = "\n".join(f"   ~{entry.package}.{entry.name}" for entry in entries)
    parts.append(f".. autosummary::\n   :nosignatures:\n\n{rows}")
    for entry in entries:
        directive, options = "autofunction", ""
        if inspect.isclass(entry.value):
            directive, options = "autoclass", "\n   :members:"
            if entry.value.__bases__ != (object,):
                options += "\n   :show-inheritance:"
        parts.append(f".. currentmodule:: {entry.package}\n\n.. {directive}:: {entry.name}{options}")
    return "\n\n".join(parts) + "\n"


def table_of_pages(by_group: dict[Group, list[Entry]]) -> str:
    """Markdown for the page of the reference: every page with its names."""
    rows = ["| page | names |", "|---|---|"]
    for group, entries in by_group.items():
        names = ", ".join(f"{{py:obj}}`~{entry.package}.{entry.name}`" for entry in entries)
        rows.append(f"| [{group.title}]({group.file}.rst) | {names} |")
    files = "\n".join(group.file for group in by_group)
    return "\n".join([*rows, "", "```{toctree}", ":hidden:", "", files, "```", ""])


def write_pages(app: Sphinx) -> None:
    """Write the pages to `api/`, those that changed only."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    by_group = entries_by_group()
    texts = {folder / f"{group.file}.rst": page(group, entries) for group, entries in by_group.items()}
    for path in set(folder.glob("*.rst")) - set(texts):
        path.unlink()
    for path, text in texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _source_read(app: Sphinx, name: str, source: list[str]) -> None:
    if name == "api/index":
        source[0] += "\n" + table_of_pages(entries_by_group())


def short_signature(value: Any) -> str | None:
    """The signature of a dataclass whose fields are all described below it: their names only; of a result, nothing.

    None for everything else, whose signature is shown as it is.
    """
    if not inspect.isclass(value) or not is_dataclass(value):
        return None
    if issubclass(value, Result):
        return ""
    described = {
        name for owner, name in ModuleAnalyzer.for_module(value.__module__).find_attr_docs() if owner == value.__name__
    }
    parameters = [field for field in fields(value) if field.init]
    if not {field.name for field in parameters} <= described:
        return None
    keyword_only = [field.name for field in parameters if field.kw_only]
    positional = [field.name for field in parameters if not field.kw_only]
    return f"({', '.join([*positional, *(['*'] if keyword_only else []), *keyword_only])})"


def _signature(app: Sphinx, what: str, name: str, value: Any, *signature: Any) -> tuple[str, None] | None:
    text = short_signature(value) if what == "class" else None
    return None if text is None else (text, None)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", _source_read)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
