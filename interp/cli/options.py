"""Command-line options from the fields of dataclasses: a task, a model's config, the training settings."""

import ast
import inspect
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from itertools import pairwise
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one dataclass: one for each field whose value can be written on a command line."""

    panel: str
    """Heading in the help."""
    cls: type
    """The dataclass, or any class, which then has the options of `texts` alone."""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Values of fields that are not given; other names are ignored."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults that the help shows, by field, besides the preset."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Options that are not called as their field: the name by field."""
    texts: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    """Options that are converted elsewhere: type and help by name. They replace the field of that name, if any."""
    without: Collection[str] = ()
    """Fields that are no options."""
    filled: bool = False
    """Whether fields without a default get their value elsewhere; otherwise their options must be given."""
    taken: Collection[str] = ()
    """Other options, without dashes; a field of such a name gets that of the panel before its own: `--task-steps`."""

    def __post_init__(self):
        names = self._fields() | dict(self.texts)
        object.__setattr__(self, "preset", {name: value for name, value in self.preset.items() if name in names})

    def parameters(self) -> dict[str, inspect.Parameter]:
        """One parameter per option, by field. None is its default, unless the field has to be given."""
        own, types, helps = self._fields(), _types(self.cls), _field_texts(self.cls)
        found = {}
        for name in dict.fromkeys((*own, *self.texts)):
            kind, text = self.texts.get(name) or (_option_type(types[name]), helps.get(name, ""))
            if kind is not None:
                filled = self.filled or name in self.texts or name in self.preset or not _is_required(own[name])
                choices = () if name in self.texts else _choices(types[name])
                found[name] = self._parameter(name, kind, text, choices, required=not filled)
        return found

    def given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values that were given for the fields, out of those of a command line."""
        named = {name: values.get(self.key(name)) for name in self.parameters()}
        return {name: value for name, value in named.items() if value not in (None, [])}

    def chosen(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values that were given, and the preset for other fields."""
        return {**self.preset, **self.given(values)}

    def option(self, name: str) -> str:
        """The option of a field, `--n-vars`."""
        flag = self.names.get(name, name).replace("_", "-")
        return f"--{self.panel.lower()}-{flag}" if flag in self.taken else f"--{flag}"

    @property
    def option_names(self) -> set[str]:
        """Every option without its dashes, flags also with `no-`."""
        return {start + self.option(name)[2:] for name in self.parameters() for start in ("", "no-")}

    def key(self, name: str) -> str:
        """The parameter of a field."""
        return f"{self.panel.lower()}_{name}"

    def _fields(self) -> dict[str, Field]:
        own = fields(self.cls) if is_dataclass(self.cls) else ()
        return {one.name: one for one in own if one.init and one.name not in self.without}

    def _parameter(
        self, name: str, kind: Any, text: str, choices: tuple[Any, ...], required: bool
    ) -> inspect.Parameter:
        shown, flag = {**self.defaults, **self.preset}.get(name), self.option(name)
        if isinstance(shown, bool | int | float | str | tuple) and (kind is not str or isinstance(shown, str)):
            text = f"{text} Default: {shown}.".strip()
        option = typer.Option(
            f"{flag}/--no-{flag[2:]}" if kind is bool else flag,
            help=escape(text),
            metavar="|".join(map(str, choices)) or None,
            rich_help_panel=self.panel,
        )
        return inspect.Parameter(
            self.key(name),
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[kind if required else kind | None, option],
            default=inspect.Parameter.empty if required else None,
        )


def _is_required(one: Field) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _types(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except NameError as error:
        raise ValueError(f"the annotations of {cls.__qualname__} cannot be read: {error}.") from None


def _option_type(hint: Any) -> Any:
    """A type that the command line reads: a number, text, a choice, a flag or a pair. None for any other field."""
    if hint in (int, float, str, bool) or get_origin(hint) is Literal:
        return hint
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in map(_option_type, get_args(hint)) if kind is not None]
        return str if str in kinds and _choices(hint) else next(iter(kinds), None)  # choices that can be extended
    return hint if get_origin(hint) is tuple and set(get_args(hint)) <= {int, float} else None


def _choices(hint: Any) -> tuple[Any, ...]:
    """The values of a `Literal`, or of one in a union."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next((_choices(one) for one in get_args(hint) if get_origin(one) is Literal), ())


def _field_texts(cls: type) -> dict[str, str]:
    """The docstring below each field of a dataclass and of its bases, where their source is at hand."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__[:-1]):
        if is_dataclass(one):
            try:
                (tree,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
            except (OSError, TypeError, SyntaxError, ValueError):
                continue
            assert isinstance(tree, ast.ClassDef)
            found |= {
                field.target.id: inspect.cleandoc(text.value.value)
                for field, text in pairwise(tree.body)
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                if isinstance(text, ast.Expr)
                if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
            }
    return found
