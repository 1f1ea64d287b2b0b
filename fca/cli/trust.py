"""What a configuration file may set beside the keys of components, since it may come from somebody else.

Hydra makes any object that a file describes under `hydra` (launchers, callbacks, handlers of logs), sets environment
variables and reads them. So every file is looked at when Hydra loads it, before anything of it is used. Free are the
roots of conf/ and the user's own conf/local; and what is typed, unless it names code. docs/adr/0018 has the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import DefaultsList, create_defaults_list
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from fca.plugins import PLUGINS
from fca.store.files import DamagedFile, check_yaml, content_of
from fca.types import FcaError

OURS = "hydra_plugins.fca.sweeper.FcaSweeper"
LAUNCHERS = ("hydra/launcher/gpus", "hydra/launcher/ray", "hydra/launcher/submitit_slurm")  # files of ours
OF_CLUSTERS = ("partition", "qos", "account", "constraint", "gres", "comment")  # texts of a launcher that run nothing
HYDRA_KEYS = "mode, sweeper.params, and numbers or flags of launcher"
TYPED = "type it on the command line, or move it to your own conf/local/default.yaml, if you know what it does"
OWN = "write its value, or move it to your own conf/local/default.yaml, if you know what it does"
REFERENCES = "${...} of other keys, of hydra: and of now:"
_VARIABLE = re.compile(r"\$\{\s*oc\.env\s*:([^,}]*)")
_PLAIN_NAME = re.compile(r"\s*\w+\s*")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL", re.IGNORECASE)
_PLAIN = re.compile(r"[\w.:,=/@+-]*")
_REFERENCE = re.compile(r"\$\{(now:[^${}]*|hydra:[\w.]+|[\w.@/\[\]-]+)\}")  # to a key, the time, Hydra's own values

_plain = ConfigLoaderImpl._load_single_config
_list_defaults = create_defaults_list


def _defaults_list(repo: Any, config_name: str | None, overrides_list: list[Override], **how: Any) -> DefaultsList:
    """Follow the defaults lists of files. Raises FcaError for those that Hydra stumbles over."""
    try:
        return _list_defaults(repo=repo, config_name=config_name, overrides_list=overrides_list, **how)
    except FcaError:
        raise
    except RecursionError:
        problem = "the files that a list names lead back to it"
    except ValueError as error:
        problem = " ".join(str(error).split())
    typed = [str(override.input_line) for override in overrides_list]
    words = " ".join(word for word in typed if not word.startswith("hydra."))
    allowed = f"in every file a list of GROUP: OPTION ({problem})"
    raise FcaError("defaults", words, allowed, "correct the defaults of the file that these words choose")


config_loader_impl.create_defaults_list = _defaults_list  # type: ignore  # Hydra has no hook at this place


def _load(loader: ConfigLoaderImpl, default: Any, repo: Any) -> Any:
    """Load a file. A preset of ours has more keys than the schema which its plugin gives Hydra under the same name."""
    if default.config_path in LAUNCHERS:
        repo.get_schema_source().store.repo["hydra"]["launcher"].pop(f"{Path(default.config_path).name}.yaml", None)
    return _plain(loader, default, repo)


ConfigLoaderImpl._load_single_config = _load  # type: ignore  # also in workers, which import this with the launchers


def watch(conf: Path) -> None:
    """From now on, look at every configuration file that Hydra loads.    conf: our own folder of them."""
    Plugins.instance()  # which finds the sources
    folder_source: Any = SourcesRegistry.instance().resolve("file")
    parse = folder_source.load_config

    def load_file(source: Any, config_path: str) -> ConfigResult:
        file = Path(source.path, source._normalize_file_name(config_path)).resolve()
        if not file.is_file():
            return parse(source, config_path)

        _check_yaml(file)
        try:
            result = parse(source, config_path)
        except (yaml.YAMLError, ValueError) as error:  # ValueError: digits without end
            raise _no_configuration(file, f"is no YAML ({error})") from error
        is_users = Path(source.path) == conf and config_path.startswith("local/")
        if not is_users:  # here, since Hydra takes the defaults list away, and resolves it, before all else
            values: Any = OmegaConf.to_container(result.config, resolve=False)
            _check_references(str(file), {"defaults": values.get("defaults")})
        return result

    folder_source.load_config = load_file

    def load(loader: ConfigLoaderImpl, default: Any, repo: Any) -> Any:
        result = _load(loader, default, repo)
        address, file = urlsplit(result.path), str(default.config_path)
        users = default.primary or file.startswith("local/") or file in LAUNCHERS
        ours = users and address.scheme == "file" and Path(address.path) == conf
        installed = result.provider == "hydra" or address.netloc.startswith("hydra_plugins.")
        if address.scheme in ("file", "pkg") and not ours and not installed:
            check_file(f"{address.path or address.netloc}/{file}.yaml", result.config)
        elif ours and file.startswith("local/"):
            _check_secrets(f"{address.path}/{file}.yaml", result.config)
        return result

    ConfigLoaderImpl._load_single_config = load  # type: ignore  # Hydra has no hook at this place


def load_yaml(file: Path) -> DictConfig:
    """The keys of a configuration file. Raises FcaError for what is none, see `check_yaml`."""
    _check_yaml(file)
    try:
        return DictConfig(OmegaConf.load(file))
    except (yaml.YAMLError, ValueError) as error:  # ValueError: digits without end
        raise _no_configuration(file, f"is no YAML ({error})") from error


def plain_values(file: Path) -> dict[str, Any]:
    """The keys of a configuration file as they stand in it. Raises FcaError for what is none, see `check_yaml`."""
    _check_yaml(file)
    try:
        return yaml.load(content_of(file), yaml.CSafeLoader) or {}
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none, digits without end
        raise _no_configuration(file, f"is no YAML ({error})") from error


def check_file(file: str, config: Any) -> None:
    """Raise FcaError for a file that lists plugins, sets what is Hydra's, or reads the environment, naming the key."""
    for path, value in _leaves(OmegaConf.to_container(config, resolve=False)):
        key = ".".join(path)
        if path[:1] == ("plugins",):
            step = f"if you trust their code, type plugins=[...] or set {PLUGINS}"
            raise FcaError(f"plugins in {file}", value, "only modules that you list yourself", step)
        if path[:1] == ("hydra",) and not _is_harmless(path[1:], value):
            raise FcaError(f"{key} in {file}", repr(value)[:80], f"of hydra, a file may have {HYDRA_KEYS}", TYPED)
    _check_references(file, OmegaConf.to_container(config, resolve=False))


def _check_references(file: str, values: Any) -> None:
    """Raise FcaError for a value that reads more than other keys: the environment, above all."""
    for path, value in _leaves(values):
        for text in (*path, value):
            if not _reads_only_keys(text):
                raise FcaError(f"{'.'.join(path)} in {file}", value, REFERENCES, OWN)


def _check_secrets(file: str, config: Any) -> None:
    """Raise FcaError for a variable of the environment that is a secret by its name: rows hold what is configured."""
    for path, value in _leaves(OmegaConf.to_container(config, resolve=False)):
        for name in _VARIABLE.findall(str(value)):
            if not _PLAIN_NAME.fullmatch(name) or _SECRET.search(name):
                allowed = "variables that hold no secret: values are stored with every run"
                raise FcaError(f"{'.'.join(path)} in {file}", value, allowed, "leave it out")


def _reads_only_keys(text: Any) -> bool:
    """Whether the interpolations in a text refer to other keys, to the time or to Hydra's own values."""
    return not isinstance(text, str) or text.count("${") == len(_REFERENCE.findall(text))


def _check_yaml(file: Path) -> None:
    """Raise FcaError for a file that is no plain YAML with keys, or that would fill the memory."""
    try:
        content = content_of(file)
        check_yaml(file, content)
        node = next(
            (event for event in yaml.parse(content, yaml.CSafeLoader) if isinstance(event, yaml.NodeEvent)), None
        )
    except DamagedFile as damaged:
        raise _no_configuration(file, damaged.problem) from damaged
    is_empty = node is None or (isinstance(node, yaml.ScalarEvent) and node.value in ("", "null", "~"))
    if not (is_empty or isinstance(node, yaml.MappingStartEvent)):  # a text would be parsed again
        raise _no_configuration(file, "has no keys")


def _no_configuration(file: Path, problem: str) -> FcaError:
    return FcaError("configuration file", file, f"plain YAML with keys (this one {problem})", "correct or remove it")


def check_words(words: Sequence[str]) -> None:
    """Raise FcaError for a word of the command line that names code for Hydra to run, or reads the environment.

    A component's class has a check of its own. What is configured is printed, stored and sent to W&B, and the shell
    shows what it fills in, where a command that somebody sent does not.

    >>> check_words(["hydra.launcher.n_jobs=2", "model._target_=fca.models.handmade.Hog"])
    """
    for word in words:
        key = word.lstrip("+~").partition("=")[0]
        root, _, key_of_root = key.partition(".")
        names_code = "_target_" in word
        sets_code = names_code or key_of_root.split(".")[0] in ("callbacks", "job_logging", "hydra_logging", "")
        if root == "hydra" and sets_code:
            raise FcaError("word", word, "keys of hydra that name no code", "leave it out")
        if not _reads_only_keys(word):
            raise FcaError("word", word, REFERENCES, 'have the shell fill in a variable: KEY="$NAME"')


def _is_harmless(path: tuple[str, ...], value: Any) -> bool:
    """Whether a file may set this key of Hydra's to this value."""
    match path:
        case ("mode",) | ("sweeper", "params"):
            return not value or isinstance(value, str)
        case ("sweeper", "params", word):  # which is put before the words of every run
            return word.lstrip("+~").partition(".")[0] not in ("hydra", "plugins") and not isinstance(value, dict)
        case ("sweeper", "_target_"):
            return value == OURS
        case ("launcher", str(name)) if name != "_target_":
            is_plain = name in OF_CLUSTERS and isinstance(value, str) and _PLAIN.fullmatch(value) is not None
            return value is None or isinstance(value, int | float) or is_plain
    return False


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values of a configuration that hold no others, with the keys that lead to them."""
    inner_values: dict[Any, Any] = {}
    if isinstance(value, dict):
        inner_values = value
    elif isinstance(value, list):
        inner_values = dict(enumerate(value))

    if not inner_values and not isinstance(value, list):
        yield path, value
    for key, inner in inner_values.items():
        yield from _leaves(inner, (*path, str(key)))
