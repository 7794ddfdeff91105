"""Output of commands: text, or one JSON document with `--json`; exit codes and one-line errors."""

import json
import math
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from hooks.extras import MissingExtra

DONE, FAILED, USAGE, DIFFERS, INTERRUPTED, NOT_READ = 0, 1, 2, 3, 130, 141
"""Exit codes; the last two are those of shells for SIGINT and SIGPIPE."""
RESUMED = ("demo", "train", "reproduce", "sweep")
"""Commands that resume what an interrupted one began."""
UNUSABLE = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Errors of a path that is missing or cannot be used."""

RunFolder = Annotated[
    Path, typer.Argument(help="Folder of a training run or, with --task, of a Hugging Face model; or minilm.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document; everything else goes to stderr.")]
Page = Annotated[Path | None, typer.Option(help="Also write an HTML page here.")]
Saved = Annotated[Path | None, typer.Option(help="Also save the result as JSON here.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Train again even if the folder has a trained model.")]
Device = Annotated[str | None, typer.Option(help="Where to train: cuda, cuda:1. Default: the CPU.")]


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a command returns."""

    text: str
    """For readers."""
    values: Mapping[str, Any]
    """The same as plain values, for `--json`."""
    code: int = DONE
    """Exit code."""


def with_user_paths(command: Callable[..., Output]) -> Callable[..., Output]:
    """A command in whose paths ~ is the home folder, also in `--out=~/runs`, which shells leave as it is."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Output:
        from hooks.files import user_path

        options = {name: user_path(value) if isinstance(value, Path) else value for name, value in kwargs.items()}
        return command(*args, **options)

    return run


def output_of(results: Mapping[str, Any], **files: Path | None) -> Output:
    """The output of a command that has several results, by name, and wrote these files, by what they are."""
    written = {name: str(path) for name, path in files.items() if path is not None}
    lines = [f"{name.replace('_', ' ')}: {path}" for name, path in written.items()]
    return Output(
        text="\n".join(["\n\n".join(map(str, results.values())), *lines]),
        values={name: result.to_dict() for name, result in results.items()} | written,
    )


def saved_output(result: Any, out: Path | None) -> Output:
    """The output of a command that has one result, which is also saved as JSON if there is a path."""
    if out is not None:
        result.save(out)
    return Output(text=str(result), values=result.to_dict())


class Stopped(Exception):
    """A command was stopped by Ctrl-C or SIGTERM; the message says at which step, and how to resume it."""


class _ListsFlags:
    """A command whose flags are listed without a type: they take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Arguments and options."""
        options: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for option in options:
            if getattr(option, "is_bool_flag", False):
                option.metavar = ""
        return options


class Command(_ListsFlags, TyperCommand):
    """A command whose flags are listed without a type."""


class Commands(_ListsFlags, TyperGroup):
    """Commands that report at which step they were interrupted."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # of the output, which typer makes an exit, or of something else
            if _is_closed(sys.stdout) or _is_closed(sys.stderr):
                raise
            raise RuntimeError(_text(error)) from error
        except KeyboardInterrupt as error:
            # the last note is that of the whole, and may say what resumes it
            notes = getattr(error, "__notes__", ()) or ("interrupted",)
            message = notes[-1].replace("the same call", "the same command")
            if "the same command" in message:
                raise Stopped(f"{message}.") from None
            is_resumed = ctx.invoked_subcommand in RESUMED
            advice = "The same command resumes it." if is_resumed else "Nothing was written; run it again."
            raise Stopped(f"{message}. {advice}") from None


def run_command(app: Callable[..., Any], arguments: Sequence[str]) -> int:
    """Run a command line and print its output or its error.

    With `--json`, stdout has one document, `{"command": ..., "result": ...}` or `{"error": ...}`, and nothing else. An
    error is one line on stderr in either case.

    Args:
        app: The `typer.Typer` of all commands; each returns an `Output`.
        arguments: The command line after `interp`.

    Returns:
        The exit code.
    """
    # Python has no stream for a handle that was closed, `>&-`
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        print("error: the output is closed, so nothing was run. Send it to a file or to /dev/null.", file=sys.stderr)
        return FAILED
    try:
        code = _run_and_print(app, arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard(sys.stdout, sys.stderr)
        return NOT_READ
    except OSError as error:
        # of printing, as on a full disk: errors of commands have become text
        _discard(sys.stdout)
        try:
            print(f"error: the output cannot be written: {error.strerror}.", file=sys.stderr)
        except OSError:
            _discard(sys.stderr)
        return FAILED


def _discard(*streams: Any) -> None:
    """Send what is still in the buffers of streams nowhere, so that Python prints no error at its end."""
    with open(os.devnull, "w") as nowhere:
        for stream in streams:
            with suppress(OSError):  # not a file, as in a notebook
                os.dup2(nowhere.fileno(), stream.fileno())


def _run_and_print(app: Callable[..., Any], arguments: Sequence[str]) -> int:
    """`run_command`; raises OSError if the output cannot be written: BrokenPipeError if its reader ends, as `head`."""
    as_json = "--json" in arguments
    # what commands print themselves goes to stderr with --json
    with _sigterm_as_interrupt(), redirect_stdout(sys.stderr) if as_json else nullcontext():
        code, output, error = _call(app, arguments)
    # If a command could not print its lines, this is the error, not what came of it
    sys.stdout.flush()
    if error:
        print(f"error: {error}", file=sys.stderr)
        if as_json:
            print(json.dumps({"error": error}))
    elif output is not None:
        words = [word for word in arguments if not word.startswith("-")]
        document = {"command": words[0], "result": output.values}
        print(json.dumps(_finite(document), allow_nan=False) if as_json else output.text)
    return code


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C."""
    # only the main thread can handle signals
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def _call(app: Callable[..., Any], arguments: Sequence[str]) -> tuple[int, Output | None, str]:
    """Exit code, output and error of a command line. An unexpected error prints its traceback."""
    # interruptions, errors of the user, then failures
    try:
        result = app(list(arguments), prog_name="interp", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED, None, "interrupted."
    except Stopped as stopped:
        return INTERRUPTED, None, str(stopped)
    except SystemExit as error:
        # rich and typer end the process when its output is not read
        if isinstance(error.__context__, BrokenPipeError):
            raise error.__context__ from None
        raise
    except OSError as error:
        code = USAGE if isinstance(error, UNUSABLE) else FAILED
        return code, None, _text(error)
    except ValueError as error:
        from interp.training.train import Diverged

        code = FAILED if isinstance(error, Diverged) else USAGE
        return code, None, _text(error)
    except MissingExtra as error:
        return USAGE, None, str(error)
    except TypeError as error:
        # a value of the wrong type, from the command line or a file
        from hooks.files import shortened

        if os.environ.get("INTERP_DEBUG"):
            traceback.print_exc()
        return FAILED, None, f"TypeError: {shortened(str(error))} Set INTERP_DEBUG=1 for the traceback."
    except Exception as error:
        # typer's errors of usage, whose class is not public
        if hasattr(error, "format_message"):
            return USAGE, None, _usage(error)
        traceback.print_exc()
        return FAILED, None, f"{type(error).__name__}: {error}"
    # what typer returns after Ctrl-C
    if result == INTERRUPTED:
        return INTERRUPTED, None, "interrupted."
    if isinstance(result, Output):
        return result.code, result, ""
    return DONE, None, ""


def _is_closed(stream: Any) -> bool:
    """Whether the process that reads a stream has ended, such as `head`."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), select.POLLOUT)
    except OSError:
        return False  # not a file, as in a notebook
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _text(error: Exception) -> str:
    """The message of an error, with the file for errors of the operating system."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        # filename2 is the target of a rename
        return f"{error.strerror}: {error.filename2 or error.filename}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}."
    return str(error) or type(error).__name__


def _usage(error: Any) -> str:
    """The message of typer's error in one line, and the command that prints help; empty if it has printed the help."""
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if not message or context is None:
        return message
    end = "" if message.endswith((".", "?")) else "."
    return f"{message}{end} See {context.command_path} --help."


def _finite(value: Any) -> Any:
    """Plain values with None for nan and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: _finite(element) for name, element in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(element) for element in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
