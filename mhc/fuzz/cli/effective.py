"""The options of a campaign, from the command line, the configuration of the project and the defaults, in this order."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from mhc.fuzz.cli import configuration
from mhc.fuzz.cli.configuration import KEYS, Configuration
from mhc.terminal import one_line

_LIMITS = frozenset({"hours", "minutes", "case_limit"})
_CHECKED = frozenset({"specs", "operator", "programs"})
_OF_A_RUN = _LIMITS | _CHECKED | {"against", "device", "seed", "max_elements"}
"""Options that a run to resume has of its own."""
_COMPUTED = {
    "impl": "the built-in implementations of the operator",
    "workers": "one for each core",
    "memory": "a worker's part of 80 %",
    "max-elements": "as memory allows",
    "seed": "from the clock",
    "fixtures": "tests/regressions, for built-in implementations in a checkout",
    "minutes": "1, where there is no limit",
}
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Effective:
    """The options of a campaign, each with its source.

    Attributes:
        values, sources: by the name of the parameter; a source is "command line", "default", the path of the file of the
            configuration, or the run to resume.
        configuration: the file, or none.
    """

    values: Mapping[str, Any]
    sources: Mapping[str, str]
    configuration: Configuration

    @property
    def settings(self) -> dict[str, Any]:
        """Return the keywords of `settings_of`."""
        file = str(self.configuration.file)
        named_by, compared_by = (
            self.configuration.where(key) if self.sources[name] == file else f"--{key}"
            for name, key in (("specs", "impl"), ("against", "against"))
        )
        ledger = self.configuration.ledger
        return {**self.values, "named_by": named_by, "compared_by": compared_by, "ledger": ledger}


def configured(command: Command) -> Command:
    """Add the options that say which configuration is read, and that show it."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    options = (
        click.option(
            "--config",
            type=file,
            is_eager=True,
            expose_value=False,
            callback=_configure,
            help="Read this configuration.  [default: mhc-fuzz.toml, or [tool.mhc-fuzz] in pyproject.toml, here or above]",
        ),
        click.option("--show-config", is_flag=True, help="Print each value with its source, as TOML, and exit."),
        click.option(
            "--config-schema",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_schema,
            help="Print the JSON Schema of mhc-fuzz.toml, for editors, and exit.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def effective(context: click.Context, options: Mapping[str, Any]) -> Effective:
    """Return what holds; end the process with status 0 if it is only to be shown.

    A limit on the command line replaces all limits of the file; `--impl`, `--operator` or `--programs` replaces the file's,
    and its `against`. A run to resume has its own. Otherwise each option replaces its own key.

    Args:
        options: as click made them from the command line and `context.default_map`.
    """
    values, found = dict(options), context.find_object(Configuration)
    configuration_ = found or Configuration()
    show = values.pop("show_config")
    sources = {name: _source(context, name, configuration_) for name in values}
    given = {name for name, source in sources.items() if source == "command line"}
    dropped = _LIMITS if given & _LIMITS else frozenset()
    dropped |= _CHECKED | {"against"} if given & _CHECKED else frozenset()
    origin = "default"
    if values["resume"] is not None:
        dropped, origin = _OF_A_RUN, f"the run {values['resume']}"
    repeatable = {parameter.name for parameter in context.command.params if getattr(parameter, "multiple", False)}
    for name in dropped - given:
        if sources[name] != "default":
            values[name] = () if name in repeatable else "cpu" if name == "device" else None
        sources[name] = origin
    result = Effective(values=values, sources=sources, configuration=configuration_)
    if show:
        click.echo(shown(result, campaign_options(context.command)), nl=False)
        sys.exit(0)
    return result


def shown(found: Effective, options: Mapping[str, click.Parameter]) -> str:
    """Return the values as TOML that a file could have, each with its source; a comment where there is no value."""
    file = found.configuration.file
    lines = [f"# configuration: {'none' if file is None else file.resolve()}"]
    for key in KEYS:
        name = options[key].name if key in options else None
        if name is None:
            continue
        value, source = found.values[name], found.sources[name]
        unset = value is None or value == () or source.startswith("the run")
        text = f"# {key}" if unset else f"{key} = {_toml(value)}"
        why = f"{source}: {_COMPUTED[key]}" if unset and source == "default" and key in _COMPUTED else source
        lines.append(f"{text:<40} # {one_line(why)}")
    lines += [f"# known: {entry.fingerprint} ({entry.issue})" for entry in found.configuration.known_issues]
    return "\n".join(lines) + "\n"


def campaign_options(command: click.Command) -> dict[str, click.Parameter]:
    """Return the options of a command by their long names, without dashes."""
    return {name.removeprefix("--"): option for option in command.params for name in option.opts if name.startswith("--")}


def _configure(context: click.Context, _: click.Parameter, file: Path | None) -> None:
    """Take the values of the configuration for the defaults of `context`."""
    path = configuration.find(Path.cwd()) if file is None else file.absolute()
    if path is None:
        context.obj = Configuration()
        return
    options = campaign_options(context.command)
    context.obj = configuration.read(path, options)
    context.default_map = {str(options[key].name): value for key, value in context.obj.values.items()}


def _print_schema(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(configuration.schema(campaign_options(context.command)), nl=False)
        context.exit()


def _source(context: click.Context, name: str, found: Configuration) -> str:
    kind = context.get_parameter_source(name)
    if kind is ParameterSource.DEFAULT_MAP:
        return str(found.file)
    return "command line" if kind is ParameterSource.COMMANDLINE else "default"


def _toml(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value) if isinstance(value, int | float) else json.dumps(str(value), ensure_ascii=False)
