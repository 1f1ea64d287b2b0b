"""`fca run --help`, and that of every command with a configuration: each key with its meaning, default and values.

What a key may be is declared by its class, and for analyses its meaning, too. Elsewhere the meaning is the comment
beside the key in conf/: in the chosen file, in those that it builds on, or in another of its group with the same class.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from omegaconf import DictConfig, OmegaConf

from fca.allowed import allowed_of, declared, meanings_of
from fca.cli import refused
from fca.cli.application import composed, hydra_words, schema_of
from fca.cli.commands import commands
from fca.cli.options import (
    CORRUPTIONS,
    built_on,
    group_of,
    is_option,
    nested_options,
    option_files,
    option_names,
    root_file,
    rows,
    tables,
)
from fca.cli.places import CONF
from fca.cli.terminal import typed_value
from fca.plugins import class_of, plugins, use_plugins
from fca.types import FcaError

_COMMENT = re.compile(r"[,}\]\s]*#\s*(.*)")
_DEEP = 6  # files that build on each other
LEFT = 34  # characters of the column of keys
FLAGS = {
    "-m": "sweep: run every combination of the values that commas or range(...) list",
    "--cfg job": "print the whole configuration and start nothing",
    "--cfg job --package recipe": "only one group of it",
    "--info defaults": "where each part of it comes from",
}


class Key(NamedTuple):
    """A key as it is typed, its default, meaning and allowed values."""

    name: str
    default: str
    meaning: str
    allowed: str


class Section(NamedTuple):
    """The keys of a group, under the option that is chosen, with the first line of its file."""

    title: str
    question: str
    keys: list[Key]


def main(root: str, arguments: Sequence[str]) -> int:
    """Print the help of a command for the options that the other words choose; exit code 2 for a wrong one."""
    words = [word for word in arguments if "=" in word and not word.startswith("-")]
    try:
        listed = [word for word in words if word.startswith("plugins=")]
        use_plugins(list(OmegaConf.from_dotlist(listed).get("plugins", [])))
        typed = [part for word in words for part in hydra_words(word)]
        config = composed(root, typed, with_hydra=True)
        print(*_lines(root, config), sep="\n")
    except FcaError as error:
        return refused(error)
    return 0


def _lines(root: str, config: DictConfig) -> Iterator[str]:
    width = max(80, min(shutil.get_terminal_size((120, 0)).columns, 160))
    yield f"fca {root} KEY=VALUE ...    {commands(plugins())[root].summary}"
    options = groups(root, config)
    yield f"\ngroups and their options (fca {root} GROUP=OPTION --help shows that option's keys)"
    for group, names in options.items():
        yield from _two(group, ", ".join(names), width)
    for section in sections(root, config):
        yield f"\n{section.title}"
        yield from textwrap.wrap(textwrap.shorten(section.question, 240, placeholder=" ..."), width)
        for key in section.keys:
            text = f"{key.meaning} [{key.allowed}]" if key.allowed else key.meaning
            yield from _two(f"{key.name}={key.default}", text, width)
    yield "\noptions of Hydra (fca run --hydra-help lists all)"
    for flag, what in FLAGS.items():
        if root == "run" or flag != "-m":
            yield from _two(flag, what, width)


def _two(left: str, right: str, width: int) -> Iterator[str]:
    """Two columns, the right one wrapped; a long left one has a line of its own."""
    indent = " " * (LEFT + 4)
    wrapped = textwrap.wrap(right, max(40, width - len(indent)), break_long_words=False) or [""]
    if len(left) > LEFT:
        yield f"  {left}"
        yield from (f"{indent}{line}" for line in wrapped)
    else:
        yield f"  {left:{LEFT}}  {wrapped[0]}".rstrip()
        yield from (f"{indent}{line}" for line in wrapped[1:])


def groups(root: str, config: DictConfig) -> dict[str, list[str]]:
    """The groups of a root that have more than one option, as they are typed, with their options."""
    found = {}
    for typed, _ in _choices(config):
        group, _, package = typed.partition("@")
        if package and group in found:
            found[typed] = [f"those of {group}"]
            continue
        names = option_names(group)
        of_its_own = {f"{group}/{path.name}" for path in (CONF / group).glob("*/")} & {
            name for name, _ in _choices(config)
        }
        inner = [name for name in nested_options(group) if f"{group}/{name.partition('/')[0]}" not in of_its_own]
        if len(names + inner) > 1 or group in ("debug", "experiment"):
            found[typed] = names + inner
    if root == "run":
        launchers = option_names("hydra/launcher")
        found["hydra/launcher"] = sorted({"basic", "joblib", *launchers})
    return found


def _choices(config: DictConfig) -> list[tuple[str, str | None]]:
    """Group, as it is typed, and chosen option, but for `local` and Hydra's; in the order of the defaults list."""
    chosen = {str(name): option for name, option in config.hydra.runtime.choices.items()}
    kept = [(name, option) for name, option in reversed(chosen.items()) if not name.startswith(("hydra/", "local"))]
    return [(_plain(name), option) for name, option in kept]


def _plain(group: str) -> str:
    """A group without the package that follows from its own name.

    >>> _plain("recipe/augment@recipe.augment"), _plain("model@encoder"), _plain("domain@_global_.domain")
    ('recipe/augment', 'model@encoder', 'domain')
    """
    name, _, package = group.partition("@")
    return name if package.removeprefix("_global_.") in ("", name.replace("/", ".")) else group


def sections(root: str, config: DictConfig) -> Iterator[Section]:
    """The keys of the root itself, then those of each chosen option, in the order of the defaults."""
    comments, own = comments_of(root_file(root)), []
    for name, (hint, _) in declared(schema_of(root)).items():
        value = config.get(name)
        if is_dataclass(hint) and name not in dict(_choices(config)):
            own += [_key(hint, key, f"{name}.{key}", value[key], comments.get(f"{name}.{key}", "")) for key in value]
        elif hint is not Any and not is_dataclass(hint):
            own.append(_key(schema_of(root), name, name, value, comments.get(name, "")))
    yield Section(f"keys of fca {root}", "", own)
    for typed, option in _choices(config):
        group, _, package = typed.partition("@")
        package = package or group.replace("/", ".")
        node = OmegaConf.select(config, package, throw_on_missing=False)
        if option and isinstance(node, DictConfig) and "/" not in group:
            file = option_files(group).get(option, CONF / group / f"{option}.yaml")
            yield Section(f"{typed}={option}", question_of(file), list(_keys(root, group, package, file, node)))


def _keys(root: str, group: str, name: str, file: Path, node: DictConfig) -> Iterator[Key]:
    """The keys of a node; a component in it (an augmentation in a recipe) has keys of its own."""
    values: Any = OmegaConf.to_container(node, resolve=False)
    kind: Any = declared(schema_of(root))[name][0] if name in declared(schema_of(root)) else Any
    if "_target_" in values:
        kind = class_of(f"{name}._target_", values["_target_"])
    known = meanings(file, values.get("_target_"), kind)
    for key in values:
        if key == "_target_":
            continue
        inner = values[key]
        if isinstance(inner, dict) and "_target_" in inner:
            folder = CONF / group / str(key)
            place = folder if folder.is_dir() else CONF / str(key)
            yield from _keys(root, place.relative_to(CONF).as_posix(), f"{name}.{key}", place / "none.yaml", node[key])
        else:
            yield _key(kind, str(key), f"{name}.{key}", inner, known.get(str(key), ""))


def _key(kind: Any, name: str, typed: str, default: Any, meaning: str) -> Key:
    known: Mapping[str, object] = declared(kind) if is_dataclass(kind) else {}  # type: ignore[arg-type]
    allowed = allowed_of(kind, name) if name in known else ""
    default = OmegaConf.to_container(default) if OmegaConf.is_config(default) else default
    return Key(typed, typed_value(default), meaning, allowed)


def meanings(file: Path, target: str | None, kind: Any = None) -> dict[str, str]:
    """Key -> meaning: as its class declares it, else the comment in this file or in one that it builds on, else in
    another file of its group with the same class.

    target: the name of the class.    kind: the class; None where there is none.
    """
    found: dict[str, str] = {}
    files_of_group = tuple(option_files(group_of(file)).values())
    for other in (file, *_of_class(files_of_group).get(target or "", [])):
        for path in _chain(other):
            found = {**comments_of(path), **found}
    return {**found, **meanings_of(kind)} if is_dataclass(kind) else found


@cache
def _of_class(files: tuple[Path, ...]) -> dict[str, list[Path]]:
    """These options by their class; rows name none."""
    found: dict[str, list[Path]] = {}
    for path in filter(Path.is_file, files):
        target = re.search(r"^_target_: (\S+)", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        if target is not None:
            found.setdefault(target[1], []).append(path)
    return found


def _chain(file: Path, deep: int = 0) -> Iterator[Path]:
    """A file and those of its folder in its defaults list, the nearest first; none that is broken."""
    if not is_option(file) or deep > _DEEP:
        return
    try:
        below = built_on(file)
    except FcaError:  # nobody chose it, or Hydra would have refused it
        return

    yield file
    for other in reversed(below):
        yield from _chain(other, deep + 1)


@cache
def comments_of(file: Path) -> Mapping[str, str]:
    """Key -> the comment behind its value; keys inside others as outer.inner. Empty where there is no file.

    >>> comments_of(CONF / "machine" / "default.yaml")["accelerator"]
    'auto, cpu or gpu'
    """
    found: dict[str, str] = {}
    with suppress(FileNotFoundError):
        text = file.read_text(encoding="utf-8")
        node = yaml.compose(text, yaml.CSafeLoader)
        if isinstance(node, yaml.MappingNode):
            _collect(node, text.splitlines(), "", found)
    return found


def _collect(node: yaml.MappingNode, lines: Sequence[str], before: str, found: dict[str, str]) -> None:
    for key, value in node.value:
        block = isinstance(value, yaml.CollectionNode) and not value.flow_style
        ends = [value.end_mark] * (not block) + [key.end_mark] * (value.start_mark.line > key.end_mark.line)
        for end in ends:
            rest = lines[end.line][end.column :].lstrip(":") if end.line < len(lines) else ""
            if before + key.value not in found and (comment := _COMMENT.match(rest)) is not None:
                found[before + key.value] = comment[1].strip()
        if block and isinstance(value, yaml.MappingNode):
            _collect(value, lines, f"{before}{key.value}.", found)


def question_of(file: Path) -> str:
    """What a file is for: the comment at its top, as far as the first command; or that of a row in its place."""
    if file in rows():
        return _question_of_corruption(file.stem) if file.parent == CORRUPTIONS else _question_of_row(file)
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        if not line.startswith("#") or line.startswith("#   "):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(line for line in lines if not line.startswith("@package"))


def _question_of_row(file: Path) -> str:
    """The comment behind a row."""
    name = file.relative_to(CONF).with_suffix("").as_posix()
    comments = [comments_of(table) for table in tables()]
    return next(of_table[key] for of_table in comments if (key := name.replace("/", ".", 1)) in of_table)


def _question_of_corruption(kind: str) -> str:
    from fca.shifts.corruption import KINDS  # which imports SciPy

    return f"How much accuracy is lost to {KINDS[kind].cause}?"
