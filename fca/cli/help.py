"""`fca run --help`, and that of every command with a configuration: keys with their meaning, default and values.

That of `fca run` first shows what people change; `fca run GROUP --help` shows a group, `fca run all --help` every key.

The class of a key declares which values are allowed, and for analyses also the meaning. Elsewhere the meaning is the
comment beside the key in conf/: in the chosen file, in those that it builds on, or in another of its group with the
same class.
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
from fca.validation import describe_allowed, meanings_of, rules_by_field

_COMMENT = re.compile(r"[,}\]\s]*#\s*(.*)")  # behind a value, and behind brackets that close there
_MAX_DEPTH = 6  # of files that build on each other: a circle of files must end
LEFT_WIDTH = 34  # characters of the left column, with keys and options
ALL = "all"  # the word in `fca run all --help`
FLAGS = {
    "-m": "sweep: run every combination of the values that commas or range(...) list",
    "--cfg job": "print the whole configuration and start nothing",
    "--cfg job --package recipe": "only one group of it",
    "--info defaults": "where each part of it comes from",
}

CHANGED_FIRST = (  # groups and keys of `fca run` that most users change, in this order
    "dataset",
    "model",
    "model.weights",
    "adaptation",
    "task",
    "experiment",
    "subset.ncl",
    "subset.seed",
    "seed",
    "recipe",
    "recipe.epochs",
    "recipe.lr",
    "limit",
    "outputs",
    "hydra/launcher",
)
MEANINGS_OF_GROUPS = {
    "dataset": "images",
    "model": "network",
    "adaptation": "how a network is adapted to the classes",
    "task": "what a run does",
    "experiment": "a whole study: its data, models, grid of ncl and seeds",
    "recipe": "how a network is trained",
    "hydra/launcher": "what works on the runs of a sweep",
    "shift": "what is done to the test images",
    "subset": "how the classes are chosen",
    "logger": "where runs are followed",
}
MAX_OPTIONS = 14  # of a group; of one with more only the useful options are listed
USEFUL_OPTIONS = {
    "dataset": ("digits", "cifar10", "cifar100", "caltech101", "food101", "imagenet", "folder", "manifest", "hf"),
    "model": (
        "test_resnet",
        "test_vit",
        "resnet18",
        "resnet50",
        "mobilenetv3_small",
        "convnext_tiny",
        "vit_b16",
        "clip_vit_b16",
        "timm",
        "torchvision",
        "own",
        "run",
    ),
    "shift": ("clean", "corruption/common", "corruption/all", "imagenet_c/all", "cifar_c/all", "noise/all"),
    "recipe": ("default", "few_images", "resnet18", "resnet50", "mobilenetv3_small", "convnext_tiny", "vit_b16"),
}


class Key(NamedTuple):
    """A key of the configuration, as the help prints it: as it is typed, its default, meaning and allowed values."""

    name: str
    default: str
    meaning: str
    allowed: str


class Section(NamedTuple):
    """The keys of a group with its chosen option.

    title: group=option.
    question: what the option is for, from the head of its file.
    """

    title: str
    question: str
    keys: list[Key]


def main(root: str, arguments: Sequence[str]) -> int:
    """Print the help of a command and return the exit code: 0, or 2 for an unknown option or a wrong value.

    The help describes the configuration that the other words choose: model=resnet18 shows the keys of that model.
    root:      the command (run, analyse, ...), whose configuration is conf/<root>.yaml.
    arguments: the words behind the command, including --help. A name of groups among them (model) limits the help to
               these groups; the word `all` gives every key.
    """
    words = [word for word in arguments if "=" in word and not word.startswith("-")]
    try:
        # Plugins are loaded first, because they add folders of options that the other words may name
        plugin_words = [word for word in words if word.startswith("plugins=")]
        use_plugins(list(OmegaConf.from_dotlist(plugin_words).get("plugins", [])))
        # a word such as shift=corruption/fog/3 stands for several words of Hydra's
        overrides = [hydra_word for word in words for hydra_word in hydra_words(word)]
        config = composed(root, overrides, with_hydra=True)  # the node hydra has the chosen option of each group

        typed_groups = [group for group in _option_by_group(config) if _is_named(group, arguments)]
        if typed_groups:  # fca run model --help
            lines = _lines_of_groups(root, config, typed_groups)
        elif root != "run" or ALL in arguments:  # only fca run has a short help: CHANGED_FIRST lists keys of fca run
            lines = _all_lines(root, config)
        else:
            lines = _short_lines(root, config, words)
        print(*lines, sep="\n")
    except FcaError as error:
        return refused(error)
    return 0


def _is_named(group: str, words: Sequence[str]) -> bool:
    """Whether one of these words is the name of a group.

    A group such as model@encoder (options of model, used as encoder) may be named by the part behind the @ alone.
    """
    place = group.partition("@")[2]
    return group in words or (place != "" and place in words)


def _short_lines(root: str, config: DictConfig, words: Sequence[str]) -> Iterator[str]:
    """The lines of `fca run --help`: what most users change, then the other groups and keys.

    Keys of a group are only shown if the user typed the name of the group, or if the group comes with the chosen task.

    root:   the command.
    config: its whole configuration, with Hydra's part.
    words:  the words of the form key=value that the user typed.
    """
    options = groups(root, config)
    chosen_options = _option_by_group(config)
    root_section, *group_sections = sections(root, config)
    keys = {key.name: key for section in (root_section, *group_sections) for key in section.keys}
    width = _terminal_width()
    yield _headline(root)

    yield "\nwhat people change first, with the defaults"
    for name in CHANGED_FIRST:  # each is a group (dataset) or a key (subset.ncl)
        if name in chosen_options:
            yield from _group_lines(root, name, chosen_options[name], options.get(name, []), width)
        elif name in keys:
            yield from _key_lines(keys[name], width)

    yield "\nother groups"
    for name, option in chosen_options.items():
        if name not in CHANGED_FIRST:
            yield from _group_lines(root, name, option, options.get(name, []), width)

    yield "\nother keys"
    for key in root_section.keys:
        is_key_of_group = key.name.startswith("subset.")  # subset is a group: its keys follow below, if it was typed
        if key.name not in CHANGED_FIRST and not is_key_of_group:
            yield from _key_lines(key, width)

    typed_names = {re.split(r"[./=]", word.lstrip("+~"))[0] for word in words}  # recipe of +recipe.lr=0.1
    for section in group_sections:
        group = section.title.partition("=")[0]
        # A group that is no field of the command itself was added by the chosen task. Groups with an @ are excepted:
        # model@encoder is a field of the command, under the name encoder.
        is_from_task = "@" not in group and group not in rules_by_field(schema_of(root))
        if _is_named(group, list(typed_names)) or is_from_task:
            yield from _section_lines(section, width)

    yield "\nmore help"
    yield from _two_columns(
        f"fca {root} GROUP --help", "all options of a group and the keys of the chosen option", width
    )
    yield from _two_columns(f"fca {root} GROUP=OPTION --help", "the keys of that option", width)
    yield from _two_columns(f"fca {root} {ALL} --help", "every group, option and key", width)
    yield from _flag_lines(root, width)


def _lines_of_groups(root: str, config: DictConfig, typed_groups: Sequence[str]) -> Iterator[str]:
    """The lines of `fca run GROUP --help`: the options of these groups, each with its purpose, then their keys.

    Only the keys of the chosen options are listed.
    root:         the command.
    config:       the whole configuration, with Hydra's part.
    typed_groups: names of groups as a user types them. model@encoder: the options of model, used as the encoder.
    """
    options = groups(root, config)
    chosen_options = _option_by_group(config)
    width = _terminal_width()
    yield _headline(root)

    for typed_group in typed_groups:
        group = typed_group.partition("@")[0]
        files = option_files(group)
        # `options` lacks groups with a single option; their options are listed from the files, without inner folders
        names = options.get(group, [name for name in files if "/" not in name])
        yield f"\noptions of {typed_group}; chosen: {chosen_options[typed_group] or 'null'}"
        for name in names:
            question = question_of(files[name]) if name in files else ""  # options of Hydra have no file here
            yield from _two_columns(name, textwrap.shorten(question, 120, placeholder=" ..."), width)

    for section in sections(root, config):
        if section.title.partition("=")[0] in typed_groups:
            yield from _section_lines(section, width)


def _all_lines(root: str, config: DictConfig) -> Iterator[str]:
    """The lines of `fca run all --help`: every group with its options, and every key of the chosen options.

    root: the command.
    config: its whole configuration, with Hydra's part.
    """
    width = _terminal_width()
    yield _headline(root)
    yield f"\ngroups and their options (fca {root} GROUP=OPTION --help shows that option's keys)"
    for group, names in groups(root, config).items():
        yield from _two_columns(group, ", ".join(names), width)
    for section in sections(root, config):
        yield from _section_lines(section, width)
    yield from _flag_lines(root, width)


def _terminal_width() -> int:
    return max(80, min(shutil.get_terminal_size((120, 0)).columns, 160))


def _headline(root: str) -> str:
    return f"fca {root} KEY=VALUE ...    {commands(plugins())[root].summary}"


def _group_lines(root: str, group: str, chosen: str | None, options: Sequence[str], width: int) -> Iterator[str]:
    """The lines on a group: the chosen option, what the group is for, and its options.

    If there are more than MAX_OPTIONS, only the most useful ones are listed, with the number of all.

    group:   as a user types it, such as model@encoder.
    chosen:  the chosen option; None if none is chosen.
    options: all options of the group. Empty for a group that leaves no choice; the lines then refer to its keys.
    width:   of the terminal, in characters.
    """
    listed_options = list(options)
    if len(options) > MAX_OPTIONS:
        useful = USEFUL_OPTIONS.get(group, options[:MAX_OPTIONS])
        listed_options = [name for name in useful if name in options]  # a command may offer fewer options
        listed_options.append(f"... ({len(options)} in all: fca {root} {group} --help)")
    elif not options:
        listed_options.append(f"its keys: fca {root} {group} --help")

    meaning = MEANINGS_OF_GROUPS.get(group)
    text = ", ".join(listed_options)
    yield from _two_columns(f"{group}={chosen or 'null'}", f"{meaning}: {text}" if meaning else text, width)


def _section_lines(section: Section, width: int) -> Iterator[str]:
    """The keys of a group under its title and question."""
    yield f"\n{section.title}"
    yield from textwrap.wrap(textwrap.shorten(section.question, 240, placeholder=" ..."), width)
    for key in section.keys:
        yield from _key_lines(key, width)


def _key_lines(key: Key, width: int) -> Iterator[str]:
    text = f"{key.meaning} [{key.allowed}]" if key.allowed else key.meaning
    yield from _two_columns(f"{key.name}={key.default}", text, width)


def _flag_lines(root: str, width: int) -> Iterator[str]:
    yield "\noptions of Hydra (fca run --hydra-help lists all)"
    for flag, meaning in FLAGS.items():
        if root == "run" or flag != "-m":
            yield from _two_columns(flag, meaning, width)


def _two_columns(left: str, right: str, width: int) -> Iterator[str]:
    """Lines of two columns, in which the right text is wrapped; a left text that is too long has a line of its own.

    width: of the terminal, in characters.
    """
    indent = " " * (LEFT_WIDTH + 4)
    right_width = max(40, width - len(indent))  # readable also in a very narrow terminal
    wrapped = textwrap.wrap(right, right_width, break_long_words=False) or [""]  # an empty text wraps to no line
    if len(left) > LEFT_WIDTH:
        yield f"  {left}"
        yield from (f"{indent}{line}" for line in wrapped)
    else:
        yield f"  {left:{LEFT_WIDTH}}  {wrapped[0]}".rstrip()
        yield from (f"{indent}{line}" for line in wrapped[1:])


def groups(root: str, config: DictConfig) -> dict[str, list[str]]:
    """The options of each group of a command that leaves a choice; keyed by the group as a user types it.

    A group with a single option leaves no choice and is left out, except debug and experiment, which may stay unset.
    root: the command.
    config: its whole configuration, with Hydra's part.
    """
    chosen_groups = [typed for typed, _ in _choices(config)]
    options_by_group: dict[str, list[str]] = {}
    for typed in chosen_groups:
        group, _, package = typed.partition("@")
        if package and group in options_by_group:  # model@encoder beside model: the list is not repeated
            options_by_group[typed] = [f"those of {group}"]
            continue

        # An option in a folder is listed with the folder, as corruption/fog of group shift. Options of a folder that is
        # a group of its own (recipe/augment) are left out: that group lists them
        folders = {f"{group}/{path.name}" for path in (CONF / group).glob("*/")}
        inner_groups = folders & set(chosen_groups)
        nested_names = []
        for name in nested_options(group):
            folder = f"{group}/{name.partition('/')[0]}"
            if folder not in inner_groups:
                nested_names.append(name)

        names = option_names(group) + nested_names
        if len(names) > 1 or group in ("debug", "experiment"):  # these two may stay unset, so one option is a choice
            options_by_group[typed] = names

    if root == "run":
        launchers = option_names("hydra/launcher")
        # two launchers come with Hydra and have no file here
        options_by_group["hydra/launcher"] = sorted({"basic", "joblib", *launchers})
    return options_by_group


def _choices(config: DictConfig) -> list[tuple[str, str | None]]:
    """The groups of a configuration, as they are typed, each with its chosen option (None: none is chosen).

    They are in the order of the defaults list. Hydra's own groups are left out, and so is the user's conf/local.
    """
    option_by_group = {str(group): option for group, option in config.hydra.runtime.choices.items()}
    return [
        (_as_typed(group), option)
        for group, option in reversed(option_by_group.items())  # Hydra lists them backwards
        if not group.startswith(("hydra/", "local"))
    ]


def _option_by_group(config: DictConfig) -> dict[str, str | None]:
    """Each group, as it is typed, -> its chosen option. The launcher is included, although it is a group of Hydra."""
    launcher = config.hydra.runtime.choices.get("hydra/launcher")
    return {**dict(_choices(config)), "hydra/launcher": launcher}


def _as_typed(group: str) -> str:
    """A group as a user types it: without the package (the place of its keys) where this follows from its name.

    >>> _as_typed("recipe/augment@recipe.augment"), _as_typed("model@encoder"), _as_typed("domain@_global_.domain")
    ('recipe/augment', 'model@encoder', 'domain')
    """
    name, _, package = group.partition("@")
    return name if package.removeprefix("_global_.") in ("", name.replace("/", ".")) else group


def sections(root: str, config: DictConfig) -> Iterator[Section]:
    """The section of the command's own keys, then a section for each chosen option, in the order of the defaults list.

    A group inside another group (recipe/augment) has no section: its keys are in the section of the outer group.
    root: the command.
    config: its whole configuration, with Hydra's part.
    """
    yield Section(f"keys of fca {root}", "", list(_keys_of_root(root, config)))

    for typed, option in _choices(config):
        group, _, package = typed.partition("@")
        package = package or group.replace("/", ".")  # the place of its keys in the configuration
        node = OmegaConf.select(config, package, throw_on_missing=False)
        is_inner_group = "/" in group
        if option and isinstance(node, DictConfig) and not is_inner_group:
            usual_file = CONF / group / f"{option}.yaml"  # for an option that only Hydra can find; need not exist
            file = option_files(group).get(option, usual_file)
            keys = list(_keys(root, group, package, file, node))
            yield Section(f"{typed}={option}", question_of(file), keys)


def _keys_of_root(root: str, config: DictConfig) -> Iterator[Key]:
    """The keys of a command that belong to no group. A nested mapping gives its inner keys, such as sweep.retry.

    root: the command.
    config: its whole configuration, with Hydra's part.
    """
    comments = comments_of(root_file(root))
    groups_of_root = dict(_choices(config))
    for name, (type_of_key, _) in rules_by_field(schema_of(root)).items():  # the type is Any for a component of a group
        value = config.get(name)
        if is_dataclass(type_of_key) and name not in groups_of_root:  # a nested mapping, not a group
            for key in value:
                typed = f"{name}.{key}"
                meaning = comments.get(typed, "")
                yield _key(type_of_key, key, typed, default=value[key], meaning=meaning)
        elif type_of_key is not Any and not is_dataclass(type_of_key):
            yield _key(schema_of(root), name, typed=name, default=value, meaning=comments.get(name, ""))


def _keys(root: str, group: str, name: str, file: Path, node: DictConfig) -> Iterator[Key]:
    """The keys of a chosen option. A component inside it (the augmentation of a recipe) gives its inner keys.

    root:  the command.
    group: the group of the option, such as model or recipe/augment.
    name:  the place of the option's keys in the configuration, such as recipe or recipe.augment.
    file:  the YAML file of the option.
    node:  the option's part of the configuration.
    """
    values: Any = OmegaConf.to_container(node, resolve=False)
    rules = rules_by_field(schema_of(root))
    # the class that declares the keys: the class that the option builds, or a dataclass in the command's schema
    declaring_class: Any = rules[name][0] if name in rules else Any
    if "_target_" in values:
        declaring_class = class_of(f"{name}._target_", values["_target_"])

    meaning_by_key = meanings(file, values.get("_target_"), declaring_class)
    for key, value in values.items():
        if key == "_target_":
            continue
        if isinstance(value, dict) and "_target_" in value:  # a component inside this one
            # its options are in a folder inside this group (recipe/augment), or are a group of their own
            inner_group = CONF / group / str(key)
            folder = inner_group if inner_group.is_dir() else CONF / str(key)
            folder_name = folder.relative_to(CONF).as_posix()
            # Which of these options was chosen is unknown here. A file that does not exist stands for it: `meanings`
            # then takes the meanings of keys from their class, and from comments in the other files of the folder.
            unknown_file = folder / "none.yaml"
            yield from _keys(root, folder_name, f"{name}.{key}", unknown_file, node[key])
        else:
            meaning = meaning_by_key.get(str(key), "")
            yield _key(declaring_class, str(key), typed=f"{name}.{key}", default=value, meaning=meaning)


def _key(kind: Any, name: str, typed: str, default: Any, meaning: str) -> Key:
    """A key with its default as it is typed, and the values that its class allows.

    kind: the class that declares the key, or Any.
    name: of its field.
    typed: the key as it is typed.
    """
    fields: Mapping[str, object] = rules_by_field(kind) if is_dataclass(kind) else {}  # type: ignore[arg-type]
    allowed = describe_allowed(kind, name) if name in fields else ""
    default = OmegaConf.to_container(default) if OmegaConf.is_config(default) else default
    return Key(typed, typed_value(default), meaning, allowed)


def meanings(file: Path, target: str | None, kind: Any = None) -> dict[str, str]:
    """The meaning of each key of an option: key -> meaning.

    If the class of the option declares a meaning, that is used. Otherwise it is the comment beside the key in the file
    of the option, in a file that this file builds on, or in another file of the group with the same class.

    file: of the option.
    target: the name of its class.
    kind: the class; None where there is none.
    """
    files_of_group = tuple(option_files(group_of(file)).values())
    files_of_class = _files_by_class(files_of_group).get(target or "", [])

    comments: dict[str, str] = {}
    for other_file in (file, *files_of_class):
        for path in _files_built_on(other_file):
            comments = {**comments_of(path), **comments}  # the first comment on a key counts
    return {**comments, **meanings_of(kind)} if is_dataclass(kind) else comments


@cache
def _files_by_class(files: tuple[Path, ...]) -> dict[str, list[Path]]:
    """Name of a class -> the files, among these options, that name it under `_target_`.

    Options that are only an entry of an options.yaml have no file and are skipped.
    """
    files_by_class: dict[str, list[Path]] = {}
    for path in filter(Path.is_file, files):
        target = re.search(r"^_target_: (\S+)", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        if target is not None:
            files_by_class.setdefault(target[1], []).append(path)
    return files_by_class


def _files_built_on(file: Path, depth: int = 0) -> Iterator[Path]:
    """The file of an option, then the files that its defaults list names, then the files that these name, and so on.

    Files that cannot be read are left out.
    depth: the number of steps from the first file to this one.
    """
    if not is_option(file) or depth > _MAX_DEPTH:  # files that name each other in a circle would never end
        return
    try:
        base_files = built_on(file)
    except FcaError:  # a broken file that is not chosen, else Hydra would have refused it
        return

    yield file
    for base_file in reversed(base_files):  # a later base overrides earlier ones, so its files come first
        yield from _files_built_on(base_file, depth + 1)


@cache
def comments_of(file: Path) -> Mapping[str, str]:
    """Key -> the comment behind its value in a YAML file; keys inside others as outer.inner. Empty without a file.

    >>> comments_of(CONF / "machine" / "default.yaml")["accelerator"]
    'auto, cpu or gpu'
    """
    comments: dict[str, str] = {}
    with suppress(FileNotFoundError):
        text = file.read_text(encoding="utf-8")
        node = yaml.compose(text, yaml.CSafeLoader)
        if isinstance(node, yaml.MappingNode):
            _collect_comments(node, text.splitlines(), "", comments)
    return comments


def _collect_comments(node: yaml.MappingNode, lines: Sequence[str], prefix: str, comments: dict[str, str]) -> None:
    """Add the comment beside each key of a YAML mapping to `comments`, also for the mappings inside it.

    The comment is behind the value. If the value is an indented block, the comment is behind the key. If another value
    begins on the line after its key, the comment may be behind the key or behind the value.

    node:     the mapping, with the position of each key and value in the text.
    lines:    the lines of the YAML text.
    prefix:   the outer keys, such as "recipe.".
    comments: full key (recipe.lr) -> comment; it is changed in place.
    """
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        is_block = isinstance(value, yaml.CollectionNode) and not value.flow_style

        ends = []  # the positions behind which the comment may stand
        if not is_block:
            ends.append(value.end_mark)
        if value.start_mark.line > key.end_mark.line:
            ends.append(key.end_mark)
        for end in ends:
            # The colon behind a key is skipped. An end mark may be behind the last line of the text.
            text_behind = lines[end.line][end.column :].lstrip(":") if end.line < len(lines) else ""
            comment = _COMMENT.match(text_behind)  # closing brackets and spaces, then # and the comment
            if comment is not None:
                comments.setdefault(name, comment[1].strip())

        if is_block and isinstance(value, yaml.MappingNode):
            _collect_comments(value, lines, f"{name}.", comments)


def question_of(file: Path) -> str:
    """What an option is for: the comment at the top of its YAML file, up to the first command in the comment.

    The result is empty if there is no comment.
    file: of the option. An option without a file of its own has the path that its file would have (the keys of
          `rows()`). If the option is a kind of corruption, the result is the question how much accuracy is lost to its
          cause. If it is an entry of an options.yaml, the result is the comment beside the entry.
    """
    if file in rows() and file.parent == CORRUPTIONS:
        return _question_of_corruption(file.stem)
    if file in rows():
        return _comment_beside_entry(file)
    if not file.is_file():
        return ""

    lines = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.startswith("#") or line.startswith("#   "):  # commands are indented
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(line for line in lines if not line.startswith("@package"))  # @package is a directive for Hydra


def _comment_beside_entry(file: Path) -> str:
    """The comment beside an option's entry in an options.yaml.

    file: the path of the file that it would have.
    """
    key = file.relative_to(CONF).with_suffix("").as_posix().replace("/", ".", 1)  # group.option
    comments_by_file = [comments_of(options_file) for options_file in tables()]
    return next(comments[key] for comments in comments_by_file if key in comments)


def _question_of_corruption(kind: str) -> str:
    from fca.shifts.corruption import KINDS  # imports SciPy

    return f"How much accuracy is lost to {KINDS[kind].cause}?"
