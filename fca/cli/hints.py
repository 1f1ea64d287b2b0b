"""What somebody meant who typed a key, a group or a word that there is not: errors that end with what to type instead.

A key is looked for where it is: with other spelling beside what was typed, in the groups of the configuration, in
other options of a group. Only names that other tools use for the same thing are listed by hand.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fca.cli.analysis_keys import GROUP, with_defaults
from fca.cli.options import built_on, is_option, keys_in, option_files, option_names
from fca.types import LISTED, FcaError, listed, similar

KEY = r"[+~]*[A-Za-z_][\w$]*([.@:/][\w$]+)*@?"  # what Hydra reads as a key
MOST = 3  # suggestions
_DEEP = 6  # files that build on each other
ELSEWHERE = {  # how other tools call a key -> our key
    **dict.fromkeys(("learning_rate", "lr0"), "recipe.lr"),
    **dict.fromkeys(("batch", "bs", "train_batch_size"), "recipe.batch_size"),
    **dict.fromkeys(("num_epochs", "max_epochs", "n_epochs", "epoch"), "recipe.epochs"),
    **dict.fromkeys(("wd", "decay"), "recipe.weight_decay"),
    **dict.fromkeys(("optimizer", "optim", "opt"), "recipe.optimiser"),
    **dict.fromkeys(("augmentation", "augmentations", "aug"), "recipe/augment"),
    **dict.fromkeys(("image_size", "img_size", "imgsz", "img", "resolution", "size"), "model.input_size"),
    **dict.fromkeys(("checkpoint", "ckpt", "pretrained"), "model.weights"),
    **dict.fromkeys(("arch", "architecture", "network", "net", "backbone"), "model"),
    **dict.fromkeys(("num_classes", "n_classes", "nc"), "subset.ncl"),
    **dict.fromkeys(("num_workers", "j"), "machine.workers"),
    **dict.fromkeys(("device", "accelerator"), "machine.accelerator"),
    "gpus": "machine.devices",
    "classes": "subset.classes",
    **dict.fromkeys(("run", "run_id"), "model.run_id"),
    "snapshot": "model.snapshot",
    **dict.fromkeys(("data_dir", "data_path", "path", "folder", "images"), "dataset.root"),
    **dict.fromkeys(("output", "output_dir", "out_dir", "save_dir"), "outputs"),
}
VALUES = {  # of such keys: what stands for their values
    "pretrained": {"true": "pretrained", "1": "pretrained", "yes": "pretrained", "false": "null", "0": "null"},
    "device": {"cuda": "gpu", "cuda:0": "gpu", "0": "gpu"},
}
PREFERRED = ("folder", "predict")  # among options that have a key, where several do


def unknown_key(
    root: str, key: str, value: str | None, siblings: Iterable[str], config: Mapping[str, Any], conf: Path
) -> FcaError:
    """The error for a key that there is not.

    siblings: the keys at its place.    config: the configuration, composed; may be empty.    conf: the folder of YAMLs.
    """
    if "/" in key and not (conf / key).is_dir():
        key = key.replace("/", ".")
    before, _, name = key.rpartition(".")
    keys = [str(sibling) for sibling in siblings]
    allowed = listed(similar_first(keys, name), name)
    meant = [_word(other, value, name) for other in _meant(key, keys, config, conf)]
    meant = meant or list(_in_other_options(key, value, keys, conf))
    if before and not meant:
        meant = [_word(other, value, name) for other in _of_that_name(name, config)]
    step = f"fca {root} --help lists groups and keys"

    if meant:
        step = f"did you mean {' or '.join(meant[:MOST])}? {step}"
    elif before and _takes_any_key(config, before):
        step = f"keys of {before} are added with +: +{_word(key, value, name)}"
    elif before:
        step = f"correct its name; fca {root} {before.partition('.')[0]} --help lists the keys of {before}"
    return FcaError("key", key, allowed or f"no key: {before or root} has none", step)


def unknown_option(root: str, group: str, name: str, options: Sequence[str], file: str) -> FcaError:
    """The error for an option that a group does not have."""
    near = similar(options, name)
    meant = f"did you mean {group}={near[0]}? " if near else ""
    if group == "dataset" and name and Path(name).expanduser().exists():
        meant = f"did you mean dataset=folder {_quoted('dataset.root', name)}? "
    rest = f"fca {root} {group} --help lists all" if len(options) > LISTED else "choose one"
    step = f"{meant}{rest}, or add conf/{file}.yaml" if name else f"give a name, {group}=NAME; {rest}"
    return FcaError(group, name, listed(similar_first(options, name), name), step)


def unknown_word(root: str, word: str, keys: Sequence[str], config: Mapping[str, Any]) -> FcaError:
    """The error for a word that is no KEY=VALUE: it may be a key, the name of an option, or a path of images.

    keys: those at the top of the configuration.    config: the configuration, composed.
    """
    every_key = {*keys, *_leaves(config)}
    meant = [f"{word}=VALUE, without spaces around the ="] if word in every_key else []
    key, colon, value = word.partition(":")
    if colon and key in every_key:
        meant = [_quoted(key, value)]
    if "dataset" in keys and word and Path(word).expanduser().exists():
        meant = [f"dataset=folder {_quoted('dataset.root', word)}"]
    groups = [*keys, "experiment"] if root == "run" else keys
    meant += [f"{group}={word}" for group in groups if word in option_files(group)]
    folder, _, option = word.rpartition("/")
    if re.fullmatch(r"\w+(/\w+)*", folder) and option in option_files(folder):  # no path of elsewhere
        meant += [f"{folder}={option}"]
    hint = f"did you mean {' or '.join(meant[:MOST])}? " if meant else ""
    return FcaError("word", word, "KEY=VALUE", f"{hint}fca {root} --help lists groups and keys")


def unreadable(key: str, value: str) -> str:
    """Why Hydra cannot read a word, in words of ours."""
    if not re.fullmatch(KEY, key, re.ASCII):
        return f"the key {key} is not written as keys are: letters of a to z, digits and _, with single dots between"
    plain = re.sub(r"\\.", "", value)
    for quote in "'\"":
        if plain.count(quote) % 2:
            return f"the quote {quote} is not closed"
    for opening, closing in ("[]", "{}", "()"):
        if plain.count(opening) != plain.count(closing):
            return f"{plain.count(opening)} {opening} but {plain.count(closing)} {closing}"
    if not value.isascii():
        letters = "".join(dict.fromkeys(letter for letter in value if not letter.isascii()))
        return f"without quotes, it has letters beyond a to z: {letters[:10]}"
    if re.search(r",\s*(,|$)|^\s*,", value):
        return "a comma has no value beside it"
    if value.count("=") and not value.startswith(("[", "{")):
        return "without quotes, it has another = in it"
    return "text, a number, [A, B], {A: B}, or several with commas between"


def one_at_a_time(key: str, value: str) -> str | None:
    """What to type for several values of a key that takes one, such as [2,3] or 2-5; None for other values.

    >>> one_at_a_time("seed", "[0, 1]"), one_at_a_time("subset.ncl", "2-5"), one_at_a_time("subset.ncl", "two")
    ('to run each: fca run -m seed=0,1', "to run each: fca run -m 'subset.ncl=range(2,6)'", None)
    """
    if re.fullmatch(r"\[[\w./+-]+(, *[\w./+-]+)+\]", value):
        return f"to run each: fca run -m {_quoted(key, value[1:-1].replace(' ', ''))}"
    ends = re.fullmatch(r"(\d{1,9})(?:-|\.\.\.?|:)(\d{1,9})", value)
    if ends and int(ends[1]) < int(ends[2]):
        return f"to run each: fca run -m {_quoted(key, f'range({ends[1]},{int(ends[2]) + 1})')}"
    return None


def beside(group: str, name: str, siblings: Iterable[str]) -> list[str]:
    """The keys of a group that may have been meant by one that it does not have.

    >>> beside("recipe", "learning_rate", ["epochs", "lr"]), beside("recipe", "epoch", ["epochs", "lr"])
    (['lr'], ['epochs'])
    """
    keys = list(siblings)
    known_as = ELSEWHERE.get(name, "").removeprefix(f"{group}.")
    return [known_as] if known_as in keys else similar(keys, name)


def similar_first(names: Iterable[str], typed: str) -> list[str]:
    """All names, those that look like what was typed first."""
    every = list(names)
    near = similar(every, typed)
    return [*near, *(name for name in every if name not in near)]


def group_as_key(key: str, conf: Path) -> str | None:
    """The group whose name was typed with dots, such as recipe.augment; None for a key that is none."""
    group = key.replace(".", "/")
    if "." in key and option_names(group):
        return group
    return "hydra/launcher" if key == "hydra.launcher" else None


def _meant(key: str, siblings: Sequence[str], config: Mapping[str, Any], conf: Path) -> list[str]:
    """Keys, as they are typed, that may have been meant by one that there is not; the likeliest first."""
    before, _, name = key.rpartition(".")
    leaves = list(_leaves(config))
    if key in leaves:
        return [key]
    if (group := group_as_key(key, conf)) is not None:
        return [group]

    prefix = f"{before}." if before else ""
    near_here = [f"{prefix}{sibling}" for sibling in similar(siblings, name)]
    elsewhere = ELSEWHERE.get(name)
    same_place = elsewhere is not None and (not before or elsewhere.startswith(prefix))
    if elsewhere is not None and same_place and (elsewhere in leaves or "." not in elsewhere):
        return [elsewhere]
    if elsewhere is not None and same_place and elsewhere.partition(".")[0] in config:
        return []  # other options of that group may have it
    if before:
        return [_as_typed(other, conf) for other in near_here]

    last_parts = {leaf: leaf.rpartition(".")[2] for leaf in leaves}
    near = similar(dict.fromkeys(last_parts.values()), name)
    like_name = [leaf for leaf, last in last_parts.items() if last in near]
    meant = _of_that_name(name, config) or near_here or (like_name if len(like_name) <= MOST else [])
    return [_as_typed(other, conf) for other in meant]


def _of_that_name(name: str, config: Mapping[str, Any]) -> list[str]:
    """The keys of a configuration whose last part is this."""
    return [leaf for leaf in _leaves(config) if leaf.rpartition(".")[2] == name]


def _as_typed(key: str, conf: Path) -> str:
    """A key, or recipe/augment for recipe.augment, which is a group."""
    return group_as_key(key, conf) or key


def _in_other_options(key: str, value: str | None, siblings: Sequence[str], conf: Path) -> Iterator[str]:
    """Words that choose an option of the same group which has this key, those first that ask for it.

    A key without a group is looked for in all groups beside it.
    """
    group_typed, _, name_typed = key.rpartition(".")
    elsewhere = ELSEWHERE.get(name_typed, "")
    is_of_group = not group_typed or elsewhere.startswith(f"{group_typed}.")
    before, _, name = (elsewhere if elsewhere and is_of_group else key).rpartition(".")
    groups = [before] if before else ["dataset", "model", "task", "shift", "recipe", "analysis"]
    if not group_typed:
        groups = [group for group in groups if group in siblings]
    for group in groups:
        options = _options_with(conf, group.replace("encoder", "model"), name) if (conf / group).is_dir() else []
        needing = [option for option, needed in options if needed]
        candidates = needing or [option for option, _ in options]
        first = [option for option in PREFERRED if option in candidates]
        for option in dict.fromkeys([*first, *candidates]):
            yield f"{group}={option} {_word(f'{group}.{name}', value, key)}"


@cache
def _options_with(conf: Path, group: str, name: str) -> list[tuple[str, bool]]:
    """Options of a group that have a key, with whether it must be given."""
    options = []
    for option, file in option_files(group).items():
        values = values_of(file)
        if name in values:
            options.append((option, values[name] == "???"))
    return options


@cache
def values_of(file: Path) -> dict[str, Any]:
    """The keys of an option: those that its file and the files below it have, and of an analysis those of its class."""
    values = _written_values(file)
    if file.parent.name == GROUP and values:
        with suppress(FcaError):  # a class that nobody may name, or that is not there, gives no hint
            return with_defaults(values)
    return values


def _written_values(file: Path, deep: int = 0) -> dict[str, Any]:
    """The keys that a file and those that it builds on have."""
    if not is_option(file) or deep > _DEEP:
        return {}
    try:
        keys, below = keys_in(file), built_on(file)
    except FcaError:  # a broken file, which nobody chose, gives no hint
        return {}
    values: dict[str, Any] = {}
    for other in below:
        values |= _written_values(other, deep + 1)
    return values | {key: value for key, value in keys.items() if key != "defaults"}


def _takes_any_key(config: Mapping[str, Any], key: str) -> bool:
    """Whether a node of the configuration is empty, as are those of keywords that a library takes."""
    node = OmegaConf.select(config, key, throw_on_missing=False) if isinstance(config, DictConfig) else None
    return isinstance(node, DictConfig) and not node


def _leaves(config: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """The keys of a configuration as they are typed, but for Hydra's."""
    for key in config:
        if key in ("hydra", "_target_"):
            continue
        yield f"{before}{key}"
        node: Any = config._get_node(key) if isinstance(config, DictConfig) else config[key]
        is_filled = isinstance(node, DictConfig) and not (node._is_none() or node._is_missing())
        if isinstance(node, dict) or (is_filled and not node._is_interpolation()):
            yield from _leaves(node, f"{before}{key}.")


def _word(key: str, value: str | None, name: str) -> str:
    """A key with the value that was typed, for a shell.    name: the key that was typed."""
    if value is None:
        return key
    return _quoted(key, VALUES.get(name, {}).get(value.casefold(), value))


def _quoted(key: str, value: str) -> str:
    return shlex.quote(f"{key}={value}")


def keys_of_root(root: type) -> list[str]:
    """The keys at the top of a command's configuration, as they are typed."""
    return ["model@encoder" if field.name == "encoder" else field.name for field in fields(root)]
