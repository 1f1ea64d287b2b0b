"""From a composed configuration to objects: the data, models, subset and task of one job, and its plan of runs."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Protocol, get_args, get_origin, runtime_checkable

from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from fca.cli.application import check_root, composed, one_line
from fca.cli.hints import beside, one_at_a_time, similar_first
from fca.cli.options import option_names
from fca.data.content import has_index
from fca.data.splits import as_trained_on, first_images
from fca.plugins import check_contract, class_of, plugins
from fca.shifts import Shifts
from fca.store import Store
from fca.store.files import DamagedFile, read_yaml
from fca.subset import draw_subset, full_set, key_of, named_subset, number_of_classes
from fca.tasks import RunContext, Task, Tracker
from fca.tasks.adaptation.network import Network
from fca.types import Analysis, ClassSubset, Dataset, FcaError, ImageData, Model, Run, check_choice, choices_in_words
from fca.validation import check_truths, check_values, describe_allowed, rules_by_field

log = logging.getLogger(__name__)

CONTRACTS: dict[str, type] = {  # the protocol of the components of each group; studies declare those of their groups
    "dataset": Dataset,
    "model": Model,
    "encoder": Model,
    "shift": Shifts,
    "task": Task,
    "adaptation": Task,
    "logger": Tracker,
    "analysis": Analysis,
}
_COMPONENTS: dict[str, Any] = {}  # planning thousands of runs makes each component once


def component(config: Mapping[str, Any] | DictConfig, group: str, contract: type | None = None) -> Any:
    """The object that a group's node describes: `_target_` names its dataclass, whose fields are the keys and types.

    contract: the protocol of its kind; None: that of CONTRACTS, if any. Equal nodes give the same object.
    Raises FcaError for an unknown key, a wrong type or a missing value, naming it as the user would type it.
    """
    values = _values(config, group)
    key = group + json.dumps([values, plugins()], sort_keys=True)
    if key not in _COMPONENTS:
        with _explained(values, group):
            new: Any = OmegaConf.to_object(typed(values, group))
        check_values(type(new), vars(new), group)
        _check_contracts(new, values, group, contract or CONTRACTS.get(group))
        if isinstance(new, Checked):
            new.check()
        _COMPONENTS[key] = new
    return _COMPONENTS[key]


def _check_contracts(instance: Any, values: Mapping[str, Any], name: str, contract: type | None) -> None:
    """Raise FcaError for a component that lacks a part of its contract, or that holds such a component.

    values: of its node.    name: of its group; a generator in a data set is dataset.generator.
    """
    if contract is not None:
        check_contract(f"{name}._target_", instance, contract)
    if contract is Analysis:
        from fca.report.finding import study_findings  # which imports the drawing libraries

        study_findings(instance)

    contracts = instance.contracts if isinstance(instance, Holder) else {}
    for key, value in values.items():
        if isinstance(value, dict) and "_target_" in value:
            _check_contracts(getattr(instance, key), value, f"{name}.{key}", contracts.get(key))


@runtime_checkable
class Holder(Protocol):
    """A component that holds others, with the contract of each by its key."""

    contracts: ClassVar[Mapping[str, type]]


@runtime_checkable
class Checked(Protocol):
    """A component that checks its values against each other."""

    def check(self) -> None:
        """Raise FcaError for values that do not fit each other."""


@contextmanager
def keys_of(group: str, instance: Any) -> Iterator[None]:
    """Errors in the body that name a component's field, such as budget, name it as it is typed: task.budget."""
    try:
        yield
    except FcaError as error:
        name, *rest_of_error = error.args
        if name not in vars(instance):
            raise
        raise FcaError(f"{group}.{name}", *rest_of_error) from error


def load_data(name: str, **keys: Any) -> ImageData:
    """The images of conf/dataset/<name>.yaml, listed but not read; public sets are downloaded on first use.

    keys: values of that file to change, such as `root` of the data set `folder`.
    Raises FcaError for a name, key or value that is not allowed, and for missing data.

    >>> load_data("digits").classes[:3]
    ('0', '1', '2')
    """
    return component(configured("run", "dataset", name, keys), "dataset").load()


def load_model(name: str, **keys: Any) -> Model:
    """The model of conf/model/<name>.yaml, not yet built; `.build()` returns the network with its preprocessing.

    keys: values of that file to change, e.g. weights="pretrained"; a trained run is load_model("run", run_id=...).
    Raises FcaError for a name, key or value that is not allowed.

    >>> load_model("test_resnet", input_size=32).label()
    'test_resnet'
    """
    return component(configured("run", "model", name, keys), "model")


def configured(root: str, group: str, name: str, keys: Mapping[str, Any], *words: str, **others: Any) -> DictConfig:
    """A root with this option of a group and some keys changed, for use in Python; `component` checks the group's keys.

    keys: of the group.    others: keys of the root.    Raises FcaError for an unknown name, and a value of a wrong
    kind.
    """
    check_choice(group, name, option_names(group))
    config = composed(root, [f"{group}={name}", *words])
    keys_of_group = {f"{group}.{key}": value for key, value in keys.items()}
    with open_dict(config):
        for key, value in {**keys_of_group, **others}.items():
            try:
                OmegaConf.update(config, key, str(value) if isinstance(value, Path) else value)
                OmegaConf.select(config, key)  # raises if the value refers to a missing key
            except OmegaConfBaseException as error:
                raise FcaError(key, value, one_line(error), f"correct {key}") from error
    return config


def typed(values: Mapping[str, Any], name: str) -> Any:
    """A group's values under the types of its class; some may still be missing (`???`).    name: for messages.

    A component may hold others, such as a data set its generator: values that name a class.
    """
    nested = {
        key: typed(value, f"{name}.{key}")
        for key, value in values.items()
        if isinstance(value, dict) and "_target_" in value
    }
    component_class = class_of(f"{name}._target_", values.get("_target_"))
    with _explained(values, name):
        field_values = {key: nested.get(key, value) for key, value in values.items() if key != "_target_"}
        for key in field_values.keys() & _text_fields(component_class):
            field_values[key] = _as_texts(field_values[key])
        check_truths(component_class, field_values, name)

        schema = _schema(component_class).copy()
        for key in field_values.keys() & _mapping_fields(component_class):
            schema[key] = {}  # otherwise the values would be added to the default
        return OmegaConf.merge(schema, field_values)


@cache
def _text_fields(component_class: type) -> frozenset[str]:
    """The fields of a class whose values are only texts."""
    leaf_types = {name: set(_leaf_types(hint)) for name, (hint, _) in rules_by_field(component_class).items()}
    return frozenset(name for name, types in leaf_types.items() if types <= {str, NoneType})


@cache
def _mapping_fields(component_class: type) -> frozenset[str]:
    """The fields of a class whose values are mappings."""
    return frozenset(name for name, (hint, _) in rules_by_field(component_class).items() if get_origin(hint) is dict)


def _leaf_types(hint: Any) -> Iterator[Any]:
    """The types in a type such as dict[str, list[float]] or int | None."""
    inner_hints = get_args(hint)
    if not inner_hints:
        yield hint
    for inner_hint in inner_hints:
        yield from _leaf_types(inner_hint)


def _as_texts(value: Any) -> Any:
    """Truth values, and keys that are numbers, as the texts that were typed.

    YAML reads true as a truth value, of which OmegaConf would make the text True, the name of another class or folder;
    and OmegaConf refuses the key 0 of {0: train}.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return [_as_texts(element) for element in value]
    if not isinstance(value, dict):
        return value

    texts = {}
    for key, element in value.items():
        text_key = _as_texts(key)
        if isinstance(text_key, int | float):
            text_key = str(text_key)
        texts[text_key] = _as_texts(element)
    return texts


def _values(config: Mapping[str, Any] | DictConfig, group: str) -> Any:
    """A group's node as a dictionary. Raises FcaError for a plain value, which comes from a YAML of the user's."""
    node = config[group]
    if not isinstance(node, dict | DictConfig):
        folder = "model@encoder" if group == "encoder" else group
        step = f"choose it in the defaults list, `- override /{folder}: {node}`, or type {folder}={node}"
        raise FcaError(group, node, f"an option of the group {folder}; a YAML has it as a plain value", step)
    return node if isinstance(node, dict) else OmegaConf.to_container(node, resolve=True)


@contextmanager
def _explained(values: Mapping[str, Any], group: str) -> Iterator[None]:
    """Turn OmegaConf's errors in the body into FcaError: the key as it is typed, its value, what is allowed."""
    try:
        yield
    except OmegaConfBaseException as error:
        component_class = class_of(group, values["_target_"])
        key = (getattr(error, "full_key", None) or "").partition("[")[0]  # of a list, not of one of its values
        if not key:  # OmegaConf does not always name the key
            key = next((name for name, value in values.items() if not _fits(component_class, name, value)), "")
        value = OmegaConf.select(OmegaConf.create(dict(values)), key, throw_on_missing=False)

        files = f"look at conf/{group.rpartition('.')[2].replace('encoder', 'model')}/"
        if isinstance(error, ConfigKeyError):
            raise _no_field(component_class, group, key, value, files) from error

        first_line = str(error).splitlines()[0]
        allowed = _allowed_inside(component_class, key) or first_line
        inner_keys = _keys_inside(component_class, key)
        example = f"{group}.{key}.{inner_keys[0]}" if inner_keys else f"{group}.{key}"
        step = one_at_a_time(f"{group}.{key}", as_typed(value)) or f"set {example}=... or {files}"
        raise FcaError(f"{group}.{key}", value, allowed, step) from error


def _no_field(component_class: type, group: str, key: str, value: Any, files: str) -> FcaError:
    """The error for a key that is not a field of a component's class."""
    fields = similar_first(rules_by_field(component_class), key)
    allowed = choices_in_words(f"{group}.{name}" for name in fields)
    similar = beside(group, key, fields)
    step = f"did you mean {group}.{similar[0]}={as_typed(value)}?" if similar else f"leave it out, or {files}"
    return FcaError(f"{group}.{key}", value, allowed, step)


def as_typed(value: Any) -> str:
    """A value as it is typed on the command line.

    >>> as_typed([1, 2]), as_typed(0.5)
    ('[1, 2]', '0.5')
    """
    if isinstance(value, list | ListConfig):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


def _allowed_inside(component_class: Any, key: str) -> str | None:
    """The allowed values, in words, of a field or of a field inside of it (val.share); None for other keys."""
    field, _, inner_key = key.partition(".")
    if not isinstance(component_class, type) or not is_dataclass(component_class):
        return None
    if field not in rules_by_field(component_class):
        return None
    if inner_key:
        return _allowed_inside(rules_by_field(component_class)[field][0], inner_key)
    return describe_allowed(component_class, field)


def _keys_inside(component_class: Any, key: str) -> list[str]:
    """The fields of the dataclass in the type of a field, such as share and seed of val; empty for other fields."""
    if key not in rules_by_field(component_class):
        return []
    hint = rules_by_field(component_class)[key][0]
    for inner_type in (hint, *get_args(hint)):
        if isinstance(inner_type, type) and is_dataclass(inner_type):
            return list(rules_by_field(inner_type))
    return []


def _fits(component_class: type, name: str, value: Any) -> bool:
    """Whether a value has the type of its field."""
    if name == "_target_":
        return True
    try:
        OmegaConf.merge(_schema(component_class), {name: value})
    except OmegaConfBaseException:
        return False
    return True


@cache
def _schema(component_class: type) -> DictConfig:
    """The fields of a class as a typed node to be filled; OmegaConf makes those of frozen dataclasses read-only."""
    schema = OmegaConf.structured(component_class)
    _make_writable(schema)
    return schema


def _make_writable(node: DictConfig) -> None:
    OmegaConf.set_readonly(node, None)
    for key in node:
        child = node._get_node(key)  # there is no public way to a child whose value is missing
        if isinstance(child, DictConfig):
            _make_writable(child)


_LISTED: dict[tuple[int, int | None], ImageData] = {}  # data are listed once for all jobs of a process


@dataclass(frozen=True)
class Job:
    """A configuration as objects: its task, the components of the task, and its runs."""

    task: Task
    context: RunContext
    plan: list[Run]
    values: Mapping[str, Any]  # the resolved configuration
    command: str

    @property
    def chosen_classes(self) -> str | None:
        """A line with the classes that subset.classes names; None if it names none."""
        if self.values["subset"]["classes"] is None:
            return None
        data = self.context.data
        keys = [data.classes[index] for index in self.context.subset.classes]
        return f"classes of {data.name}: {choices_in_words(keys)} ({len(keys)} of {len(data.classes)})"

    @property
    def config(self) -> str:
        """The resolved configuration as YAML, stored beside every run; writing it takes as long as planning does.

        Its first line is the command, since a run in progress has no row that could show it.
        """
        return f"# {' '.join(self.command.split())}\n{OmegaConf.to_yaml(self.values)}"


class NotDownloaded(Exception):
    """A configuration that cannot be planned before its data set is downloaded."""

    def __init__(self, command: str, dataset: str) -> None:
        super().__init__(command, dataset)
        self.command = command
        self.dataset = dataset


def not_here(datasets: Sequence[str]) -> str:
    """A note that printed commands cannot leave out finished runs of data sets that are not downloaded yet.

    >>> not_here(["cifar10", "cifar10"])
    'note: cifar10 is not here yet, and printing downloads nothing: its runs that are done are printed, too'
    """
    names = ", ".join(dict.fromkeys(datasets))
    return f"note: {names} is not here yet, and printing downloads nothing: its runs that are done are printed, too"


def job_of(config: DictConfig, overrides: list[str], *, download: bool = True) -> Job:
    """Check a whole configuration and plan it; decodes no image and writes nothing to the store.

    download: whether to download a public set that is not here yet; if not, such a configuration raises NotDownloaded.
    """
    values: Any = OmegaConf.to_container(config, resolve=True)
    check_root("run", values)
    if isinstance(values["model"], dict):  # otherwise `component` refuses it
        _check_classes_of_model(values["model"], overrides)
    command = _command(values, overrides)
    data = data_of(values) if download else _data_at_hand(values, command)
    if isinstance(values["model"], dict):
        _name_classes(values["model"], data)
    shift_by_label = {shift.label(): shift for shift in component(values, "shift").shifts()}
    context = RunContext(
        data=data,
        model=component(values, "model"),
        encoder=component(values, "encoder"),
        shifts=list(shift_by_label.values()),  # each once
        recipe=component(values, "recipe"),
        subset=_subset(values["subset"], data),
        seed=values["seed"],
        adaptation=Network() if values["adaptation"] is None else component(values, "adaptation"),
        compat=values["compat"],
        machine=component(values, "machine"),
        trainer=component(values, "trainer"),
        store=Store(Path(values["outputs"])),
        tracker=component(values, "logger"),
    )
    task = component(values, "task")
    with keys_of("task", task), keys_of("model", context.model):
        plan = task.plan(context)
    return Job(task, context, plan, values, command)


def _command(values: Mapping[str, Any], overrides: Sequence[str]) -> str:
    """The command line of this configuration alone."""
    words = [word for word in overrides if not word.startswith("sweep.")]
    if set(plugins()) != set(values["plugins"]):  # some are listed in FCA_PLUGINS
        words = [word for word in words if not word.startswith("plugins=")]
        words.append(f"plugins=[{','.join(plugins())}]")
    if any(word.startswith("experiment=") for word in words):
        words.append("hydra.mode=RUN")  # this configuration alone, of an experiment that may sweep
    return shlex.join(["fca", "run", *words])


def _data_at_hand(values: dict[str, Any], command: str) -> ImageData:
    """The images of a configuration if they are here, or cannot be downloaded; otherwise raises NotDownloaded."""
    dataset = values["dataset"]
    if not (isinstance(dataset, dict) and dataset.get("download")):
        return data_of(values)

    component(values, "dataset")  # checks its keys
    without_download = {**values, "dataset": {**dataset, "download": False}}
    try:
        return data_of(without_download)
    except FcaError as error:
        if error.args[0] != "dataset.root":
            raise
        name = dataset.get("name") or str(dataset["_target_"]).rpartition(".")[2].lower()
        raise NotDownloaded(command, name) from error


def data_of(config: Mapping[str, Any] | DictConfig) -> ImageData:
    """The images of a configuration, listed once per process."""
    loader = component(config, "dataset")
    limit = config["limit"]
    key = (id(loader), limit)  # equal nodes are one loader, which lives as long as the process
    if key not in _LISTED:
        data = loader.load()
        _LISTED[key] = data if limit is None else first_images(data, limit)
    return _LISTED[key]


MOST_CONFIGURATIONS = 20  # of runs, in which the images of a page are looked for
LOADERS_OF_ANY_FOLDER = ("fca.data.folder.", "fca.data.manifest.")


def store_with_images(outputs: str | Path) -> Store:
    """The store of this folder, for pages: it can list the images that its runs read, for pictures."""
    store = Store(Path(outputs))
    return replace(store, images=partial(_images_of, store))


def _images_of(store: Store, fingerprint: str) -> ImageData | None:
    """The data set of this fingerprint, listed with the configuration of a recent run on it; None if it is gone.

    A store may come from a stranger and name any folder. So only fca's loaders are called, none downloads, and none
    lists a folder or archive that this user has not listed before.
    """
    rows = store.rows()
    rows = rows[rows["fingerprint"] == fingerprint].sort_values("finished", ascending=False)
    tried: list[Any] = []
    for run_id in rows["run_id"].head(MOST_CONFIGURATIONS):
        try:
            config = config_of(store.folder(run_id) / "config.yaml")
            values = _values(config, "dataset")
            if [values, config.limit] in tried or not _may_be_listed(values):
                continue
            tried.append([dict(values), config.limit])

            if "download" in values:
                config.dataset.download = False
            data = data_of(config)
            data = as_trained_on(data, fingerprint, data.group)
        except Exception as error:  # whatever is wrong there, a page without these pictures is better than no page
            log.info("no images of %s from run %s: %s", fingerprint, run_id, error)
            continue
        if data.fingerprint == fingerprint:
            return data
    return None


def _may_be_listed(dataset: Mapping[str, Any]) -> bool:
    """Whether a stored configuration names one of fca's loaders, and only a folder that this user has listed before."""
    loader = dataset["_target_"]
    if not loader.startswith("fca.data."):
        return False
    return not loader.startswith(LOADERS_OF_ANY_FOLDER) or has_index(dataset["root"])


def config_of(path: Path) -> DictConfig:
    """The configuration of a run. Raises DamagedFile for a file that fca did not write, see `read_yaml`."""
    values = read_yaml(path)
    if "${" in json.dumps(values, default=str):  # fca's are resolved; this one might read the environment
        raise DamagedFile(path, "refers to other values, as no configuration of a run does")
    return DictConfig(OmegaConf.create(values))


def _check_classes_of_model(model: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Raise FcaError for typed class keys of a model without weights, which has no logits that they could name."""
    typed_keys = {word.partition("=")[0].lstrip("+") for word in overrides}
    is_from_scratch = "weights" in model and model["weights"] is None
    if "model.classes" in typed_keys and is_from_scratch and model.get("classes") is not None:
        allowed = "null without model.weights: a training gives a network from scratch the classes of its data"
        raise FcaError("model.classes", model["classes"], allowed, "leave it out, or add model.weights=PATH")


def _name_classes(model: dict[str, Any], data: ImageData) -> None:
    """Spell classes in model.classes that YAML read as numbers or truth values as the data set spells its classes."""
    classes = model.get("classes")
    if not isinstance(classes, list):
        return

    spelled: list[Any] = []
    for value in classes:
        key = value if isinstance(value, str) else key_of(data.classes, value, "model.classes")
        spelled.append(value if key is None else key)
    model["classes"] = spelled


def _subset(subset: Mapping[str, Any], data: ImageData) -> ClassSubset:
    """The classes that the keys of `subset` select."""
    ncl = subset["ncl"]
    classes = subset["classes"]
    sampler = subset["sampler"]
    total = len(data.classes)
    if classes is not None:
        if ncl not in (None, len(classes)):
            allowed = f"{len(classes)}, as subset.classes has"
            raise FcaError("subset.ncl", ncl, allowed, "give only one of them")
        return named_subset(data.classes, classes)
    if ncl is None and sampler == "fca":  # this sampler draws; subset=all takes all classes
        raise FcaError("subset.ncl", None, f"2 to {total} for subset=fca", "add subset.ncl=5, or take subset=all")
    if ncl is None:
        return full_set(total)
    return draw_subset(total, number_of_classes(ncl, total), subset["seed"], sampler)
