"""Errors for an unknown key, group or word that end with what to type instead.

A key is searched for with similar spelling beside what was typed, in the groups of the configuration, and in other
options of a group. Only names that other tools use for the same thing are listed by hand.
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
from fca.types import LISTED, FcaError, choices_in_words, similar_choices

KEY = r"[+~]*[A-Za-z_][\w$]*([.@:/][\w$]+)*@?"  # what Hydra reads as a key
MAX_SUGGESTIONS = 3
_MAX_FILES_IN_CHAIN = 6  # of files that build on each other
KEY_BY_FOREIGN_NAME = {  # how other tools call a key -> our key
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
VALUES_BY_FOREIGN_NAME = {  # how other tools call a key -> its value there -> our value
    "pretrained": {"true": "pretrained", "1": "pretrained", "yes": "pretrained", "false": "null", "0": "null"},
    "device": {"cuda": "gpu", "cuda:0": "gpu", "0": "gpu"},
}
PREFERRED_OPTIONS = ("folder", "predict")  # suggested first, where several options have a key


def unknown_key(
    root: str, key: str, value: str | None, siblings: Iterable[str], config: Mapping[str, Any], conf: Path
) -> FcaError:
    """The error for a key that a configuration does not have; it suggests keys that may have been meant.

    root:     the command, such as run.
    key:      as typed.
    value:    as typed; None: a key without a value.
    siblings: the keys that exist at the place of the unknown key: for recipe.lrr, the keys of recipe.
    config:   the composed configuration, whose keys may be suggested; may be empty.
    conf:     the folder conf/ with the YAML files of the options.
    """
    if "/" in key and not (conf / key).is_dir():  # recipe/lr for recipe.lr: it is no group
        key = key.replace("/", ".")
    group, _, name = key.rpartition(".")
    keys = [str(sibling) for sibling in siblings]
    allowed = choices_in_words(similar_first(keys, name), name)  # the text is shortened, so similar keys come first

    # Suggest KEY=VALUE with the typed value. `_word` replaces the value if `name` is what another tool calls our key:
    # device=cuda becomes machine.accelerator=gpu. The likeliest keys are tried first.
    suggestions = [_word(similar_key, value, name) for similar_key in _similar_keys(key, keys, config, conf)]
    if not suggestions:  # the key may belong to another option of the group
        suggestions = list(_in_other_options(key, value, keys, conf))
    if group and not suggestions:  # the same name may be in another group
        suggestions = [_word(key_of_name, value, name) for key_of_name in _keys_named(name, config)]

    step = f"fca {root} --help lists groups and keys"
    if suggestions:
        step = f"did you mean {' or '.join(suggestions[:MAX_SUGGESTIONS])}? {step}"
    elif group and _takes_any_key(config, group):  # an empty node, for the keywords of a library
        step = f"keys of {group} are added with +: +{_word(key, value, name)}"
    elif group:
        step = f"correct its name; fca {root} {group.partition('.')[0]} --help lists the keys of {group}"
    return FcaError("key", key, allowed or f"no key: {group or root} has none", step)


def unknown_option(root: str, group: str, name: str, options: Sequence[str], file: str) -> FcaError:
    """The error for an option that a group does not have; it suggests the option that may have been meant.

    root: the command.
    name: the option as typed; may be empty.
    options: the options that the group has.
    file: the file in conf/, without its ending, that the user could add to have the typed option.
    """
    similar_names = similar_choices(options, name)
    hint = f"did you mean {group}={similar_names[0]}? " if similar_names else ""
    if group == "dataset" and name and Path(name).expanduser().exists():  # a path was typed in place of a data set
        hint = f"did you mean dataset=folder {_quoted('dataset.root', name)}? "

    choice = f"fca {root} {group} --help lists all" if len(options) > LISTED else "choose one"
    step = f"{hint}{choice}, or add conf/{file}.yaml" if name else f"give a name, {group}=NAME; {choice}"
    return FcaError(group, name, choices_in_words(similar_first(options, name), name), step)


def unknown_word(root: str, word: str, keys: Sequence[str], config: Mapping[str, Any]) -> FcaError:
    """The error for a word that is not KEY=VALUE; it suggests what may have been meant.

    The word may be a key, KEY:VALUE, the name of an option, GROUP/OPTION, or the path of a data set.
    root: the command.
    keys: the keys at the top of the configuration.
    config: the composed configuration.
    """
    all_keys = {*keys, *_leaves(config)}
    key, colon, value = word.partition(":")
    suggestions = []
    if "dataset" in keys and word and Path(word).expanduser().exists():
        suggestions.append(f"dataset=folder {_quoted('dataset.root', word)}")
    elif colon and key in all_keys:
        suggestions.append(_quoted(key, value))
    elif word in all_keys:
        suggestions.append(f"{word}=VALUE, without spaces around the =")

    groups = [*keys, "experiment"] if root == "run" else keys  # experiments are chosen like groups, but are no key
    suggestions += [f"{group}={word}" for group in groups if word in option_files(group)]
    folder, _, option = word.rpartition("/")
    may_be_group = re.fullmatch(r"\w+(/\w+)*", folder) is not None  # not /tmp or ../data, which would leave conf/
    if may_be_group and option in option_files(folder):
        suggestions.append(f"{folder}={option}")

    hint = f"did you mean {' or '.join(suggestions[:MAX_SUGGESTIONS])}? " if suggestions else ""
    return FcaError("word", word, "KEY=VALUE", f"{hint}fca {root} --help lists groups and keys")


def unreadable(key: str, value: str) -> str:
    """Why Hydra cannot read KEY=VALUE, in words; what Hydra can read, if the reason is not found."""
    if not re.fullmatch(KEY, key, re.ASCII):
        return f"the key {key} is not written as keys are: letters of a to z, digits and _, with single dots between"
    without_escapes = re.sub(r"\\.", "", value)  # an escaped quote or bracket opens and closes nothing
    for quote in "'\"":
        if without_escapes.count(quote) % 2:
            return f"the quote {quote} is not closed"
    for opening, closing in ("[]", "{}", "()"):
        n_opening = without_escapes.count(opening)
        n_closing = without_escapes.count(closing)
        if n_opening != n_closing:
            return f"{n_opening} {opening} but {n_closing} {closing}"
    if not value.isascii():
        letters = "".join(dict.fromkeys(letter for letter in value if not letter.isascii()))
        return f"without quotes, it has letters beyond a to z: {letters[:10]}"
    if re.search(r",\s*(,|$)|^\s*,", value):  # two commas in a row, or one at an end
        return "a comma has no value beside it"
    if value.count("=") and not value.startswith(("[", "{")):
        return "without quotes, it has another = in it"
    return "text, a number, [A, B], {A: B}, or several with commas between"


def one_at_a_time(key: str, value: str) -> str | None:
    """What to type to sweep over the values, where a list or range such as [2,3] or 2-5 was typed for one value.

    Returns None if the typed value is neither a list nor a range.

    >>> one_at_a_time("seed", "[0, 1]"), one_at_a_time("subset.ncl", "2-5"), one_at_a_time("subset.ncl", "two")
    ('to run each: fca run -m seed=0,1', "to run each: fca run -m 'subset.ncl=range(2,6)'", None)
    """
    is_list_of_words = re.fullmatch(r"\[[\w./+-]+(, *[\w./+-]+)+\]", value) is not None
    if is_list_of_words:
        values = value[1:-1].replace(" ", "")
        return f"to run each: fca run -m {_quoted(key, values)}"
    ends = re.fullmatch(r"(\d{1,9})(?:-|\.\.\.?|:)(\d{1,9})", value)  # 2-5, 2..5, 2...5 or 2:5
    if ends and int(ends[1]) < int(ends[2]):
        behind_last = int(ends[2]) + 1  # Hydra's range leaves out its end
        return f"to run each: fca run -m {_quoted(key, f'range({ends[1]},{behind_last})')}"
    return None


def beside(group: str, name: str, siblings: Iterable[str]) -> list[str]:
    """The keys of a group that a user may have meant by a name that the group does not have.

    If other tools use this name for a key of the group, only this key is returned. Otherwise these are the keys with
    similar names.
    siblings: all keys of the group.

    >>> beside("recipe", "learning_rate", ["epochs", "lr"]), beside("recipe", "epoch", ["epochs", "lr"])
    (['lr'], ['epochs'])
    """
    keys = list(siblings)
    our_name = KEY_BY_FOREIGN_NAME.get(name, "").removeprefix(f"{group}.")
    return [our_name] if our_name in keys else similar_choices(keys, name)  # "" is no key


def similar_first(names: Iterable[str], typed: str) -> list[str]:
    """All names; names that are similar to what was typed come first."""
    all_names = list(names)
    similar_names = similar_choices(all_names, typed)
    return [*similar_names, *(name for name in all_names if name not in similar_names)]


def group_as_key(key: str, conf: Path) -> str | None:
    """The group that was typed with dots for slashes: recipe/augment for recipe.augment; None for other keys."""
    group = key.replace(".", "/")
    if "." in key and option_names(group):
        return group
    return "hydra/launcher" if key == "hydra.launcher" else None  # of Hydra's groups, the one that users choose


def _similar_keys(key: str, siblings: Sequence[str], config: Mapping[str, Any], conf: Path) -> list[str]:
    """The keys, as they are typed, that a user may have meant by an unknown key, the likeliest first; may be empty.

    key:      the typed key, such as recipe.lrr, with dots in place of slashes unless it is a group.
    siblings: the keys that exist at its place: for recipe.lrr, the keys of recipe.
    config:   the composed configuration.
    conf:     the folder conf/ with the YAML files of the options.
    """
    group, _, name = key.rpartition(".")
    leaves = list(_leaves(config))
    if key in leaves:  # the user typed recipe/lr; the caller has put the dot of recipe.lr in place of the slash
        return [key]
    group_with_slash = group_as_key(key, conf)  # recipe/augment for recipe.augment; None if the key is no group
    if group_with_slash is not None:
        return [group_with_slash]

    # Perhaps the name is what another tool calls one of our keys: learning_rate for recipe.lr
    prefix = f"{group}." if group else ""
    our_key = KEY_BY_FOREIGN_NAME.get(name)
    if our_key is not None and our_key.startswith(prefix):  # without a typed group, any of our keys will do
        if our_key in leaves or "." not in our_key:  # without a dot: a group or key of the command itself, as model
            return [our_key]
        if our_key.partition(".")[0] in config:
            return []  # the chosen option lacks our key; the caller then looks in other options of the group

    # Otherwise the name is misspelled. If a group was typed, the key is one of the group's
    similar_siblings = [f"{prefix}{sibling}" for sibling in similar_choices(siblings, name)]
    if group:
        return [_as_typed(other, conf) for other in similar_siblings]

    # Without a group, the key may be in any group: first look for the very name, at last for similar ones
    keys = _keys_named(name, config) or similar_siblings
    if not keys:
        name_by_leaf = {leaf: leaf.rpartition(".")[2] for leaf in leaves}
        similar_names = similar_choices(dict.fromkeys(name_by_leaf.values()), name)
        similar_leaves = [leaf for leaf, leaf_name in name_by_leaf.items() if leaf_name in similar_names]
        keys = similar_leaves if len(similar_leaves) <= MAX_SUGGESTIONS else []  # many are no help
    return [_as_typed(other, conf) for other in keys]


def _keys_named(name: str, config: Mapping[str, Any]) -> list[str]:
    """The keys of a configuration whose last component is this name."""
    return [leaf for leaf in _leaves(config) if leaf.rpartition(".")[2] == name]


def _as_typed(key: str, conf: Path) -> str:
    """The key as it is typed: with slashes if it is a group, recipe/augment for recipe.augment."""
    return group_as_key(key, conf) or key


def _in_other_options(key: str, value: str | None, siblings: Sequence[str], conf: Path) -> Iterator[str]:
    """Yield words that choose another option of the key's group that has the key, and that set the key there.

    An example is "dataset=folder dataset.root=photos". If some options require the key, only they are suggested.
    A key that was typed without a group is searched for in all groups that the command has.

    key, value: as typed.
    siblings:   the keys that exist at the place of the key; without a group, the command's keys.
    conf:       the folder conf/ with the YAML files of the options.
    """
    typed_group, _, typed_name = key.rpartition(".")
    our_key = KEY_BY_FOREIGN_NAME.get(typed_name, "")  # learning_rate of other tools is our recipe.lr
    fits_typed_group = not typed_group or our_key.startswith(f"{typed_group}.")
    meant_key = our_key if our_key and fits_typed_group else key
    group, _, name = meant_key.rpartition(".")

    # without a group, look in the groups whose options differ in their keys
    groups = [group] if group else ["dataset", "model", "task", "shift", "recipe", "analysis"]
    if not typed_group:
        groups = [group for group in groups if group in siblings]  # a command has only some of the groups
    for group in groups:
        if not (conf / group).is_dir():
            continue
        options = _options_with(conf, group.replace("encoder", "model"), name)  # encoders are options of model
        requiring = [option for option, is_required in options if is_required]
        candidates = requiring or [option for option, _ in options]
        preferred = [option for option in PREFERRED_OPTIONS if option in candidates]
        for option in dict.fromkeys([*preferred, *candidates]):  # each once
            # for another tool's name, the value is replaced too: pretrained=true by model.weights=pretrained
            key_with_value = _word(f"{group}.{name}", value, typed_name)
            yield f"{group}={option} {key_with_value}"


@cache
def _options_with(conf: Path, group: str, name: str) -> list[tuple[str, bool]]:
    """The options of a group that have this key; with each, whether the user must type the key: its value is `???`.

    conf: the folder conf/ with the YAML files. It is a parameter only because the results are cached by it.
    """
    options = []
    for option, file in option_files(group).items():
        values = values_of(file)
        if name in values:
            options.append((option, values[name] == "???"))
    return options


@cache
def values_of(file: Path) -> dict[str, Any]:
    """The keys of an option with their values, from its file and from the files on which it builds.

    An analysis also has the defaults of its class, which its file does not repeat. For a broken file the result is
    empty.
    """
    values = _written_values(file)
    if file.parent.name == GROUP and values:
        with suppress(FcaError):  # a class that nobody may name, or that is not there, gives no hint
            return with_defaults(values)
    return values


def _written_values(file: Path, depth: int = 0) -> dict[str, Any]:
    """The keys and values in an option's file and in the files on which it builds; values of its own file count first.

    depth: the number of files that were followed to reach this one. The limit ends a chain that leads back to itself.
    """
    if not is_option(file) or depth > _MAX_FILES_IN_CHAIN:
        return {}
    try:
        keys = keys_in(file)
        base_files = built_on(file)
    except FcaError:  # a broken file, which nobody chose, gives no hint
        return {}

    values: dict[str, Any] = {}
    for base_file in base_files:
        values.update(_written_values(base_file, depth + 1))
    values.update({key: value for key, value in keys.items() if key != "defaults"})
    return values


def _takes_any_key(config: Mapping[str, Any], key: str) -> bool:
    """Whether a node of the configuration is empty: a library takes any keyword there, which is added with +.

    key: of the node, with dots.
    """
    node = OmegaConf.select(config, key, throw_on_missing=False) if isinstance(config, DictConfig) else None
    return isinstance(node, DictConfig) and not node


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield all keys of a configuration as they are typed, with dots: the keys of nodes, and the keys inside of them.

    Keys of Hydra are left out.
    prefix: the key of this node with a dot behind it; empty at the top.
    """
    for key in config:
        if key in ("hydra", "_target_"):
            continue
        yield f"{prefix}{key}"

        # _get_node, as access by [key] raises for a value that is missing, and follows references
        node: Any = config._get_node(key) if isinstance(config, DictConfig) else config[key]
        is_filled = isinstance(node, DictConfig) and not (node._is_none() or node._is_missing())
        if isinstance(node, dict) or (is_filled and not node._is_interpolation()):
            yield from _leaves(node, f"{prefix}{key}.")


def _word(key: str, value: str | None, name: str) -> str:
    """The word KEY=VALUE that is suggested to the user, quoted for a shell; the key alone if no value was typed.

    key:   the suggested key.
    value: the value that the user typed for another key; None: no value was typed.
    name:  this other key, or its last part. If it is a name that other tools use, the values of these tools are
           replaced by ours: device=cuda becomes machine.accelerator=gpu.
    """
    if value is None:
        return key
    our_values = VALUES_BY_FOREIGN_NAME.get(name, {})
    return _quoted(key, our_values.get(value.casefold(), value))


def _quoted(key: str, value: str) -> str:
    return shlex.quote(f"{key}={value}")


def keys_of_root(root: type) -> list[str]:
    """The keys at the top of a command's configuration, as they are typed.

    root: the dataclass of its schema.
    """
    # an encoder is an option of the group model
    return ["model@encoder" if field.name == "encoder" else field.name for field in fields(root)]
