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
    """The dataclass, or any other class, which has the options of `converted` only."""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Values of fields without a value on the command line; other names are ignored."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults that the help shows, by field, besides the preset."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Name of the option by field, if it is not the name of the field."""
    converted: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    """Options that are converted elsewhere: type and help by name. They replace the field of that name, if any."""
    excluded: Collection[str] = ()
    """Fields that are not options."""
    optional: bool = False
    """Whether fields without a default may be missing, because they get their value elsewhere."""
    reserved: Collection[str] = ()
    """Other options, without dashes; an option of such a name has the panel in front: `--task-steps`."""

    def __post_init__(self):
        names = self._fields() | dict(self.converted)
        object.__setattr__(self, "preset", {name: value for name, value in self.preset.items() if name in names})

    def parameters(self) -> dict[str, inspect.Parameter]:
        """One parameter per option, by field. None is its default, unless the option is required."""
        dataclass_fields = self._fields()
        hints = _type_hints(self.cls)
        help_texts = _field_docstrings(self.cls)
        parameters = {}
        for name in {**dataclass_fields, **self.converted}:
            # an option that is converted elsewhere replaces the field
            if name in self.converted:
                kind, text = self.converted[name]
                parameters[name] = self._parameter(name, kind, text)
                continue
            # a field of a type that the command line cannot read is no option
            kind = _option_type(hints[name])
            if kind is not None:
                has_value = self.optional or name in self.preset or _has_default(dataclass_fields[name])
                choices = _choices(hints[name])
                text = help_texts.get(name, "")
                parameters[name] = self._parameter(name, kind, text, choices, required=not has_value)
        return parameters

    def values(self, command_line: Mapping[str, Any]) -> dict[str, Any]:
        """The values of fields on a command line, without those that are missing."""
        values = {name: command_line.get(self.parameter_name(name)) for name in self.parameters()}
        return {name: value for name, value in values.items() if value not in (None, [])}

    def values_with_preset(self, command_line: Mapping[str, Any]) -> dict[str, Any]:
        """The values of fields on a command line, and the preset for other fields."""
        return {**self.preset, **self.values(command_line)}

    def flag(self, name: str) -> str:
        """The option of a field, `--n-vars`."""
        flag = self.names.get(name, name).replace("_", "-")
        return f"--{self.panel.lower()}-{flag}" if flag in self.reserved else f"--{flag}"

    def negative_flag(self, name: str) -> str:
        """The option that switches a field off, `--no-qk-identity`."""
        return f"--no-{self.flag(name).removeprefix('--')}"

    @property
    def flags(self) -> set[str]:
        """Every option without its dashes, also with `no-`."""
        flags = {self.flag(name).removeprefix("--") for name in self.parameters()}
        return flags | {f"no-{flag}" for flag in flags}

    def parameter_name(self, name: str) -> str:
        """The name of a field's parameter, which is distinct from those of other panels."""
        return f"{self.panel.lower()}_{name}"

    def _fields(self) -> dict[str, Field]:
        """The fields of the dataclass that may be options."""
        if not is_dataclass(self.cls):
            return {}
        return {entry.name: entry for entry in fields(self.cls) if entry.init and entry.name not in self.excluded}

    def _parameter(
        self, name: str, kind: Any, text: str, choices: tuple[Any, ...] = (), *, required: bool = False
    ) -> inspect.Parameter:
        """The parameter of an option: its flag, type, help text and choices."""
        # the help shows the default, unless it could not be written like this on a command line
        default = {**self.defaults, **self.preset}.get(name)
        is_printable = isinstance(default, bool | int | float | str | tuple)
        if is_printable and (kind is not str or isinstance(default, str)):
            text = f"{text} Default: {default}.".strip()
        flag = self.flag(name)
        if kind is bool:
            flag = f"{flag}/{self.negative_flag(name)}"
        option = typer.Option(
            flag,
            help=escape(text),
            metavar="|".join(map(str, choices)) or None,
            rich_help_panel=self.panel,
        )
        return inspect.Parameter(
            self.parameter_name(name),
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[kind if required else kind | None, option],
            default=inspect.Parameter.empty if required else None,
        )


def _has_default(dataclass_field: Field) -> bool:
    return dataclass_field.default is not MISSING or dataclass_field.default_factory is not MISSING


def _type_hints(cls: type) -> dict[str, Any]:
    """The type of each field.

    Raises:
        ValueError: an annotation that cannot be resolved.
    """
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
        # choices that can be extended are text
        return str if str in kinds and _choices(hint) else next(iter(kinds), None)
    is_pair = get_origin(hint) is tuple and set(get_args(hint)) <= {int, float}
    return hint if is_pair else None


def _choices(hint: Any) -> tuple[Any, ...]:
    """The values of a `Literal`, or of one in a union."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    literals = [member for member in get_args(hint) if get_origin(member) is Literal]
    return get_args(literals[0]) if literals else ()


def _field_docstrings(cls: type) -> dict[str, str]:
    """The docstring below each field of a dataclass and of its bases, where their source can be read."""
    docstrings: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        if not is_dataclass(base):
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            continue
        assert isinstance(tree, ast.ClassDef)
        # a field, and a statement that is a string
        for statement, next_statement in pairwise(tree.body):
            match statement, next_statement:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docstrings[name] = inspect.cleandoc(text)
    return docstrings
