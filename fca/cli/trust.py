"""What a configuration file may set beside the keys of components, since it may come from somebody else.

Hydra makes any object that a file describes under `hydra` (launchers, callbacks, handlers of logs), sets environment
variables and reads them. So every file is looked at when Hydra loads it, before anything of it is used. Free are the
roots of conf/ and the user's own conf/local, and what is typed, unless it names code. docs/adr/0018 has the reasons.
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

OUR_SWEEPER = "hydra_plugins.fca.sweeper.FcaSweeper"
OUR_LAUNCHERS = ("hydra/launcher/gpus", "hydra/launcher/ray", "hydra/launcher/submitit_slurm")  # files in conf/
HARMLESS_TEXTS_OF_LAUNCHER = ("partition", "qos", "account", "constraint", "gres", "comment")  # SLURM runs none of them
HYDRA_KEYS = "mode, sweeper.params, and numbers or flags of launcher"
TYPED = "type it on the command line, or move it to your own conf/local/default.yaml, if you know what it does"
OWN = "write its value, or move it to your own conf/local/default.yaml, if you know what it does"
REFERENCES = "${...} of other keys, of hydra: and of now:"
_VARIABLE = re.compile(r"\$\{\s*oc\.env\s*:([^,}]*)")  # ${oc.env:NAME} or ${oc.env:NAME,DEFAULT}; the group is NAME
_PLAIN_NAME = re.compile(r"\s*\w+\s*")
_NAME_OF_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL", re.IGNORECASE)
_TEXT_WITHOUT_SPACES = re.compile(r"[\w.:,=/@+-]*")
_REFERENCE = re.compile(r"\$\{(now:[^${}]*|hydra:[\w.]+|[\w.@/\[\]-]+)\}")  # to a key, the time, Hydra's own values

_hydras_load_single_config = ConfigLoaderImpl._load_single_config
_hydras_create_defaults_list = create_defaults_list


def _create_defaults_list(
    repo: Any, config_name: str | None, overrides_list: list[Override], **options: Any
) -> DefaultsList:
    """Follow the defaults lists of files as Hydra does, but raise FcaError for lists at which Hydra fails.

    A defaults list is at the head of a YAML file and names other files, on which this file builds.
    This function replaces Hydra's function create_defaults_list, and has the same arguments.
    """
    try:
        return _hydras_create_defaults_list(
            repo=repo, config_name=config_name, overrides_list=overrides_list, **options
        )
    except FcaError:  # from fca's own checks of each file; it has the reason
        raise
    except RecursionError:  # Hydra follows the lists without end
        problem = "the files that a list names lead back to it"
    except ValueError as error:  # such as an entry that is no GROUP: OPTION
        problem = " ".join(str(error).split())
    typed = [str(override.input_line) for override in overrides_list]
    words = " ".join(word for word in typed if not word.startswith("hydra."))  # keys of Hydra choose no file
    allowed = f"in every file a list of GROUP: OPTION ({problem})"
    raise FcaError("defaults", words, allowed, "correct the defaults of the file that these words choose")


config_loader_impl.create_defaults_list = _create_defaults_list  # type: ignore  # Hydra has no hook at this place


def _load_without_foreign_schema(loader: ConfigLoaderImpl, default: Any, repo: Any) -> Any:
    """Load a file as Hydra does, but check our launchers' files against no schema of Hydra's plugins.

    Such a plugin registers a schema under the name of our file, which has more keys than the schema.
    """
    if default.config_path in OUR_LAUNCHERS:
        launcher_schemas = repo.get_schema_source().store.repo["hydra"]["launcher"]
        launcher_schemas.pop(f"{Path(default.config_path).name}.yaml", None)
    return _hydras_load_single_config(loader, default, repo)


ConfigLoaderImpl._load_single_config = _load_without_foreign_schema  # type: ignore  # also in workers, which import this with the launchers


def watch(conf: Path) -> None:
    """From now on, check every configuration file that Hydra loads, before anything of it is used.

    conf: fca's own folder of configurations. Its roots, its launchers and the user's files in its folder local/ may
    set keys that other files may not.

    Two methods of Hydra are replaced. One reads a file; there, the defaults list is checked, since Hydra resolves it
    before anything else. The other loads a file for the composition; there, all other keys are checked.
    """
    Plugins.instance()  # registers the classes that read files, of which one is patched here
    folder_source: Any = SourcesRegistry.instance().resolve("file")
    hydras_load_config = folder_source.load_config

    def load_file(source: Any, config_path: str) -> ConfigResult:
        """Read a file of a folder. Raises FcaError if it is not plain YAML, or its defaults list reads the environment.

        The defaults list of the user's own files, which are in the folder local/ of `conf`, may read the environment.
        """
        file = Path(source.path, source._normalize_file_name(config_path)).resolve()
        if not file.is_file():
            return hydras_load_config(source, config_path)  # raises Hydra's error for a missing option

        _check_yaml(file)
        try:
            result = hydras_load_config(source, config_path)
        except (yaml.YAMLError, ValueError) as error:  # ValueError: a number with more digits than Python converts
            raise _not_a_configuration(file, f"is no YAML ({error})") from error
        is_of_user = Path(source.path) == conf and config_path.startswith("local/")
        if not is_of_user:  # `load` below would be too late: Hydra has resolved the defaults list by then
            values: Any = OmegaConf.to_container(result.config, resolve=False)
            _check_references(str(file), {"defaults": values.get("defaults")})
        return result

    folder_source.load_config = load_file

    def load(loader: ConfigLoaderImpl, default: Any, repo: Any) -> Any:
        """Load a file for the composition. Raises FcaError for what it may not set, depending on whose file it is.

        default: the entry of Hydra's defaults list that names the file.
        repo: the folders in which Hydra looks.
        """
        # A plugin of Hydra has a schema for a launcher of the same name as ours. Ours has more keys, so it must not be
        # checked against this schema. All other files are loaded just as Hydra does.
        result = _load_without_foreign_schema(loader, default, repo)
        address = urlsplit(result.path)  # file://FOLDER, pkg://PACKAGE or structured://
        file = str(default.config_path)

        # primary: the first file, conf/<root>.yaml; files in local/ are the user's own
        may_set_all = default.primary or file.startswith("local/") or file in OUR_LAUNCHERS
        is_trusted = may_set_all and address.scheme == "file" and Path(address.path) == conf
        # files of Hydra and of its plugins were installed by the user, like code. What has an address structured:// was
        # registered by installed code, so it is not checked either
        is_installed = result.provider == "hydra" or address.netloc.startswith("hydra_plugins.")
        if address.scheme in ("file", "pkg") and not is_trusted and not is_installed:
            check_file(f"{address.path or address.netloc}/{file}.yaml", result.config)
        elif is_trusted and file.startswith("local/"):  # these files may read the environment, but no secrets
            _check_secrets(f"{address.path}/{file}.yaml", result.config)
        return result

    ConfigLoaderImpl._load_single_config = load  # type: ignore  # Hydra has no hook at this place


def load_yaml(file: Path) -> DictConfig:
    """The keys of a configuration file as a node of OmegaConf.

    Raises FcaError for a file that is no plain YAML with keys, or that would fill the memory.
    """
    _check_yaml(file)
    try:
        return DictConfig(OmegaConf.load(file))
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number with more digits than Python converts
        raise _not_a_configuration(file, f"is no YAML ({error})") from error


def plain_values(file: Path) -> dict[str, Any]:
    """The keys of a configuration file as plain values: references such as ${seed} stay texts.

    Raises FcaError for a file that is no plain YAML with keys, or that would fill the memory.
    """
    _check_yaml(file)
    try:
        return yaml.load(content_of(file), yaml.CSafeLoader) or {}  # {}: the file is empty
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date, a number with too many digits
        raise _not_a_configuration(file, f"is no YAML ({error})") from error


def check_file(file: str, config: Any) -> None:
    """Raise FcaError, naming the key, for a file that does what only the user may do.

    Only the user may list plugins, set keys of Hydra that could run code, and read the environment.
    file: its name, for messages.
    config: its content, as a node of OmegaConf.
    """
    for path, value in _leaves(OmegaConf.to_container(config, resolve=False)):
        key = ".".join(path)
        if path[:1] == ("plugins",):
            step = f"if you trust their code, type plugins=[...] or set {PLUGINS}"
            raise FcaError(f"plugins in {file}", value, "only modules that you list yourself", step)
        if path[:1] == ("hydra",) and not _is_harmless(path[1:], value):
            raise FcaError(f"{key} in {file}", repr(value)[:80], f"of hydra, a file may have {HYDRA_KEYS}", TYPED)
    _check_references(file, OmegaConf.to_container(config, resolve=False))


def _check_references(file: str, values: Any) -> None:
    """Raise FcaError for a key or value with ${...} that is no reference to a key, the time or one of Hydra's values.

    file: its name, for messages.
    values: its content, unresolved.
    """
    for path, value in _leaves(values):
        for text in (*path, value):
            if not _reads_only_keys(text):
                raise FcaError(f"{'.'.join(path)} in {file}", value, REFERENCES, OWN)


def _check_secrets(file: str, config: Any) -> None:
    """Raise FcaError for a value that reads a variable of the environment whose name looks like a secret (TOKEN, ...).

    The value would be stored with every run and shown on pages.
    file: its name, for messages.
    config: its content.
    """
    for path, value in _leaves(OmegaConf.to_container(config, resolve=False)):
        for name in _VARIABLE.findall(str(value)):
            is_plain = _PLAIN_NAME.fullmatch(name) is not None  # otherwise a reference makes the name
            if not is_plain or _NAME_OF_SECRET.search(name):
                allowed = "variables that hold no secret: values are stored with every run"
                raise FcaError(f"{'.'.join(path)} in {file}", value, allowed, "leave it out")


def _reads_only_keys(text: Any) -> bool:
    """Whether every ${...} in a text refers to another key, to the time or to Hydra's own values."""
    if not isinstance(text, str):
        return True
    n_allowed = len(_REFERENCE.findall(text))
    return text.count("${") == n_allowed


def _check_yaml(file: Path) -> None:
    """Raise FcaError for a file that is not plain YAML with keys, or that would fill the memory; it may be empty.

    The text is not loaded. The first node that the parser finds shows whether the text is a mapping, which has keys.
    """
    try:
        content = content_of(file)
        check_yaml(file, content)  # refuses invalid YAML, and aliases that would fill the memory
        events = yaml.parse(content, yaml.CSafeLoader)
        first_node = next((event for event in events if isinstance(event, yaml.NodeEvent)), None)
    except DamagedFile as damaged:
        raise _not_a_configuration(file, damaged.problem) from damaged
    is_null = isinstance(first_node, yaml.ScalarEvent) and first_node.value in ("", "null", "~")
    is_empty = first_node is None or is_null
    # OmegaConf would parse a file that is one text a second time, without these checks
    if not (is_empty or isinstance(first_node, yaml.MappingStartEvent)):
        raise _not_a_configuration(file, "has no keys")


def _not_a_configuration(file: Path, problem: str) -> FcaError:
    return FcaError("configuration file", file, f"plain YAML with keys (this one {problem})", "correct or remove it")


def check_words(words: Sequence[str]) -> None:
    """Raise FcaError for a word of the command line that names code for Hydra to run, or reads the environment.

    A user may paste a command from somebody else. A variable that it reads would be printed, stored and sent to W&B.
    `_target_` of a component is allowed here, since its class is checked elsewhere.

    >>> check_words(["hydra.launcher.n_jobs=2", "model._target_=fca.models.handmade.Hog"])
    """
    for word in words:
        key = word.lstrip("+~").partition("=")[0]
        root, _, key_of_root = key.partition(".")
        first_key = key_of_root.split(".")[0]
        # Hydra makes the objects that these describe; "" is hydra=..., which sets all of them
        sets_code = "_target_" in word or first_key in ("callbacks", "job_logging", "hydra_logging", "")
        if root == "hydra" and sets_code:
            raise FcaError("word", word, "keys of hydra that name no code", "leave it out")
        if not _reads_only_keys(word):
            raise FcaError("word", word, REFERENCES, 'have the shell fill in a variable: KEY="$NAME"')


def _is_harmless(path: tuple[str, ...], value: Any) -> bool:
    """Whether a file that may come from a stranger may set this key below `hydra` to this value.

    path: the parts of the key, without `hydra`.
    value: a leaf: a plain value, or an empty mapping.
    """
    match path:
        case ("mode",) | ("sweeper", "params"):  # a text such as MULTIRUN; params without any axis, an empty mapping
            return not value or isinstance(value, str)
        case ("sweeper", "params", word):  # an axis of a sweep; it is read like a word of the command line
            sets_code = word.lstrip("+~").partition(".")[0] in ("hydra", "plugins")
            return not sets_code and not isinstance(value, dict)
        case ("sweeper", "_target_"):
            return value == OUR_SWEEPER
        case ("launcher", str(name)) if name != "_target_":  # _target_ names code
            is_text_without_spaces = isinstance(value, str) and _TEXT_WITHOUT_SPACES.fullmatch(value) is not None
            is_harmless_text = name in HARMLESS_TEXTS_OF_LAUNCHER and is_text_without_spaces
            return value is None or isinstance(value, int | float) or is_harmless_text
    return False


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the leaves of a configuration: each value that holds no other values, with the keys that lead to it.

    The position in a list counts as a key. An empty mapping is a leaf, an empty list yields nothing.
    path: the keys that lead to `value`.
    """
    inner_values: dict[Any, Any] = {}
    if isinstance(value, dict):
        inner_values = value
    elif isinstance(value, list):
        inner_values = dict(enumerate(value))

    if not inner_values and not isinstance(value, list):
        yield path, value
    for key, inner in inner_values.items():
        yield from _leaves(inner, (*path, str(key)))
