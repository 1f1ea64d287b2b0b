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

from fca.allowed import allowed_of, check_truths, check_values, declared
from fca.cli.application import check_root, composed, one_line
from fca.cli.hints import beside, one_at_a_time, similar_first
from fca.cli.options import option_names
from fca.data.content import is_known
from fca.data.splits import as_trained_on, first_images
from fca.plugins import check_contract, class_of, plugins
from fca.shifts import Shifts
from fca.store import Store
from fca.store.files import DamagedFile, read_yaml
from fca.subset import draw_subset, full_set, key_of, named_subset, number_of_classes
from fca.tasks import Setup, Task, Tracker
from fca.tasks.adaptation.network import Network
from fca.types import Analysis, ClassSubset, Dataset, FcaError, ImageData, Model, Run, check_choice, listed

log = logging.getLogger(__name__)

CONTRACTS: dict[str, type] = {  # the protocol of each group's components; studies pass those of their groups
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
    cache_key = group + json.dumps([values, plugins()], sort_keys=True)
    if cache_key not in _COMPONENTS:
        with _explained(values, group):
            new_component: Any = OmegaConf.to_object(typed(values, group))
        check_values(type(new_component), vars(new_component), group)
        _check_contracts(new_component, values, group, contract or CONTRACTS.get(group))
        if isinstance(new_component, Checked):
            new_component.check()
        _COMPONENTS[cache_key] = new_component
    return _COMPONENTS[cache_key]


def _check_contracts(checked: Any, values: Mapping[str, Any], name: str, contract: type | None) -> None:
    """Raise FcaError for a component that does not fulfil its contract, or that has an inner one which does not.

    values: those that it was made of.    name: of its group, or as a dataset's generator is dataset.generator.
    """
    if contract is not None:
        check_contract(f"{name}._target_", checked, contract)
    if contract is Analysis:
        from fca.report.finding import study_findings  # which imports what draws

        study_findings(checked)

    inner_contracts = checked.contracts if isinstance(checked, Holder) else {}
    for key, value in values.items():
        if isinstance(value, dict) and "_target_" in value:
            _check_contracts(getattr(checked, key), value, f"{name}.{key}", inner_contracts.get(key))


@runtime_checkable
class Holder(Protocol):
    """A component that holds others: the contract of each, by its key."""

    contracts: ClassVar[Mapping[str, type]]


@runtime_checkable
class Checked(Protocol):
    """A component whose values must fit each other."""

    def check(self) -> None:
        """Raise FcaError for those that do not."""


@contextmanager
def keys_of(group: str, instance: Any) -> Iterator[None]:
    """Make errors in the body that name a component's field alone name the key as it is typed: task.budget."""
    try:
        yield
    except FcaError as error:
        name, *details = error.args
        if name not in vars(instance):
            raise
        raise FcaError(f"{group}.{name}", *details) from error


def load_data(name: str, **keys: Any) -> ImageData:
    """The images of conf/dataset/<name>.yaml, listed but not read; public sets are fetched on first use.

    keys: values of that file to change, such as `root` of the data set `folder`.
    Raises FcaError for a name, key or value that is not allowed, and for data that are missing.

    >>> load_data("digits").classes[:3]
    ('0', '1', '2')
    """
    return component(configured("run", "dataset", name, keys), "dataset").load()


def load_model(name: str, **keys: Any) -> Model:
    """The model of conf/model/<name>.yaml, not yet built; `.build()` gives the network with its preprocessing.

    keys: values of that file to change, e.g. weights="pretrained"; a trained run is load_model("run", run_id=...).
    Raises FcaError for a name, key or value that is not allowed.

    >>> load_model("test_resnet", input_size=32).label()
    'test_resnet'
    """
    return component(configured("run", "model", name, keys), "model")


def configured(root: str, group: str, name: str, keys: Mapping[str, Any], *words: str, **others: Any) -> DictConfig:
    """A root with this option of a group and some keys changed, for use in Python; `component` checks the group's.

    keys: of the group.    others: of the root.    Raises FcaError for an unknown name, and a value that is not allowed.
    """
    check_choice(group, name, option_names(group))
    config = composed(root, [f"{group}={name}", *words])
    values = {f"{group}.{key}": value for key, value in keys.items()} | others
    with open_dict(config):
        for key, value in values.items():
            try:
                OmegaConf.update(config, key, str(value) if isinstance(value, Path) else value)
                OmegaConf.select(config, key)  # raises where the value refers to another that does not exist
            except OmegaConfBaseException as error:
                raise FcaError(key, value, one_line(error), f"correct {key}") from error
    return config


def typed(values: Mapping[str, Any], name: str) -> Any:
    """A group's values under the types of its class; some may still be missing (`???`).    name: for messages.

    A component may hold others: those of its values that name a class, as a data set its generator.
    """
    inner_components = {}
    for key, value in values.items():
        if isinstance(value, dict) and "_target_" in value:
            inner_components[key] = typed(value, f"{name}.{key}")

    kind = class_of(f"{name}._target_", values.get("_target_"))
    with _explained(values, name):
        typed_values = {key: inner_components.get(key, value) for key, value in values.items() if key != "_target_"}
        for key in typed_values.keys() & _texts(kind):
            typed_values[key] = _as_texts(typed_values[key])
        check_truths(kind, typed_values, name)

        schema = _schema(kind).copy()
        for key in typed_values.keys() & _mappings(kind):
            schema[key] = {}  # else the typed keys would be added to the default ones
        return OmegaConf.merge(schema, typed_values)


@cache
def _texts(kind: type) -> frozenset[str]:
    """The fields of a class that hold nothing but texts."""
    types_by_field = {name: set(_leaf_types(hint)) for name, (hint, _) in declared(kind).items()}
    return frozenset(name for name, types in types_by_field.items() if types <= {str, NoneType})


@cache
def _mappings(kind: type) -> frozenset[str]:
    """The fields of a class that hold keys with values."""
    return frozenset(name for name, (hint, _) in declared(kind).items() if get_origin(hint) is dict)


def _leaf_types(hint: Any) -> Iterator[Any]:
    """The types in a type such as dict[str, list[float]] or int | None."""
    inner_hints = get_args(hint)
    if not inner_hints:
        yield hint
    for inner_hint in inner_hints:
        yield from _leaf_types(inner_hint)


def _as_texts(value: Any) -> Any:
    """Truth values, and keys that are numbers, as the texts they were.

    OmegaConf would make True of true, which names another class or folder, and refuse the key 0 of {0: train}.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return [_as_texts(inner) for inner in value]
    if not isinstance(value, dict):
        return value

    texts = {}
    for key, inner in value.items():
        text_key = _as_texts(key)
        if isinstance(text_key, int | float):
            text_key = str(text_key)
        texts[text_key] = _as_texts(inner)
    return texts


def _values(config: Mapping[str, Any] | DictConfig, group: str) -> Any:
    """A group's node as a dictionary. Raises FcaError for a plain value, which a YAML of the user's put there."""
    node = config[group]
    if not isinstance(node, dict | DictConfig):
        folder = "model@encoder" if group == "encoder" else group
        step = f"choose it in the defaults list, `- override /{folder}: {node}`, or type {folder}={node}"
        raise FcaError(group, node, f"an option of the group {folder}; a YAML has it as a plain value", step)
    return node if isinstance(node, dict) else OmegaConf.to_container(node, resolve=True)


@contextmanager
def _explained(values: Mapping[str, Any], group: str) -> Iterator[None]:
    """Raise OmegaConf's errors in the body as ours: the key as it is typed, its value, what is allowed."""
    try:
        yield
    except OmegaConfBaseException as error:
        kind = class_of(group, values["_target_"])
        key = (getattr(error, "full_key", None) or "").partition("[")[0]  # of a list, not of one of its values
        if not key:
            misfits = (name for name, value in values.items() if not _fits(kind, name, value))
            key = next(misfits, "")
        value = OmegaConf.select(OmegaConf.create(dict(values)), key, throw_on_missing=False)
        folder = f"look at conf/{group.rpartition('.')[2].replace('encoder', 'model')}/"

        if isinstance(error, ConfigKeyError):
            fields = similar_first(declared(kind), key)
            similar_keys = beside(group, key, fields)
            allowed = listed(f"{group}.{name}" for name in fields)
            step = f"leave it out, or {folder}"
            if similar_keys:
                step = f"did you mean {group}.{similar_keys[0]}={shown(value)}?"
        else:
            inner_keys = _keys_inside(kind, key)
            example = f"{group}.{key}.{inner_keys[0]}" if inner_keys else f"{group}.{key}"
            allowed = _allowed_inside(kind, key) or str(error).splitlines()[0]
            step = one_at_a_time(f"{group}.{key}", shown(value)) or f"set {example}=... or {folder}"
        raise FcaError(f"{group}.{key}", value, allowed, step) from error


def shown(value: Any) -> str:
    """A value as it is typed."""
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | ListConfig) else str(value)


def _allowed_inside(kind: Any, key: str) -> str | None:
    """What a key of a class, or of a class in it (val.share), may be, in words; None for a key that is no field."""
    field, _, inner_key = key.partition(".")
    if not isinstance(kind, type) or not is_dataclass(kind) or field not in declared(kind):
        return None
    if not inner_key:
        return allowed_of(kind, field)
    inner_kind, _ = declared(kind)[field]
    return _allowed_inside(inner_kind, inner_key)


def _keys_inside(kind: Any, key: str) -> list[str]:
    """The keys of the class that a field of another holds, such as share and seed of val; none for other fields."""
    if key not in declared(kind):
        return []
    hint, _ = declared(kind)[key]
    for inner_hint in (hint, *get_args(hint)):
        if isinstance(inner_hint, type) and is_dataclass(inner_hint):
            return list(declared(inner_hint))
    return []


def _fits(kind: type, name: str, value: Any) -> bool:
    """Whether a value has the type of its field: OmegaConf does not always name the key of its errors."""
    try:
        return name == "_target_" or OmegaConf.merge(_schema(kind), {name: value}) is not None
    except OmegaConfBaseException:
        return False


@cache
def _schema(kind: type) -> DictConfig:
    """The fields of a class as a typed node. Frozen dataclasses make read-only nodes; this one is to be filled."""
    schema = OmegaConf.structured(kind)
    _unlock(schema)
    return schema


def _unlock(node: DictConfig) -> None:
    """Make a node and those inside it writable."""
    OmegaConf.set_readonly(node, None)
    for child in (node._get_node(key) for key in node):  # there is no public way to a child whose value is missing
        if isinstance(child, DictConfig):
            _unlock(child)


_LOADED: dict[tuple[int, int | None], ImageData] = {}  # listed once for all jobs of a process


@dataclass(frozen=True)
class Job:
    """A configuration ready to work: its task, what it works with, and the runs it stands for."""

    task: Task
    setup: Setup
    plan: list[Run]
    values: Mapping[str, Any]  # the resolved configuration
    command: str

    @property
    def chosen_classes(self) -> str | None:
        """A line with the classes that subset.classes named; None where it named none."""
        if self.values["subset"]["classes"] is None:
            return None
        data = self.setup.data
        keys = [data.classes[index] for index in self.setup.subset.classes]
        return f"classes of {data.name}: {listed(keys)} ({len(keys)} of {len(data.classes)})"

    @property
    def config(self) -> str:
        """The resolved configuration as YAML, kept beside every run; writing it takes as long as planning does.

        Its first line is the command: of a run that is under way, there is no row to look it up in.
        """
        return f"# {' '.join(self.command.split())}\n{OmegaConf.to_yaml(self.values)}"


class NotDownloaded(Exception):
    """A configuration that cannot be planned before its data set is downloaded: its command, and the data set."""

    def __init__(self, command: str, dataset: str) -> None:
        super().__init__(command, dataset)
        self.command, self.dataset = command, dataset


def not_here(datasets: Sequence[str]) -> str:
    """What printed commands do not know where a data set is not downloaded yet.

    >>> not_here(["cifar10", "cifar10"])
    'note: cifar10 is not here yet, and printing downloads nothing: its runs that are done are printed, too'
    """
    names = ", ".join(dict.fromkeys(datasets))
    return f"note: {names} is not here yet, and printing downloads nothing: its runs that are done are printed, too"


def job_of(config: DictConfig, overrides: list[str], *, download: bool = True) -> Job:
    """Check a whole configuration and plan it; decodes no image and writes nothing to the store.

    download: fetch a public set that is not on this machine yet. Without, such a configuration raises NotDownloaded.
    """
    values: Any = OmegaConf.to_container(config, resolve=True)
    check_root("run", values)
    command = _command(values, overrides)

    has_model_node = isinstance(values["model"], dict)  # else `component` refuses it
    if has_model_node:
        _check_classes_of_model(values["model"], overrides)
    data = data_of(values) if download else _data_at_hand(values, command)
    if has_model_node:
        _name_classes(values["model"], data)

    setup = Setup(
        data=data,
        model=component(values, "model"),
        encoder=component(values, "encoder"),
        shifts=list({shift.label(): shift for shift in component(values, "shift").shifts()}.values()),
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
    with keys_of("task", task), keys_of("model", setup.model):
        plan = task.plan(setup)
    return Job(task, setup, plan, values, command)


def _command(values: Mapping[str, Any], overrides: Sequence[str]) -> str:
    """The command line that does a configuration alone."""
    words = [word for word in overrides if not word.startswith("sweep.")]
    if set(plugins()) != set(values["plugins"]):  # some are listed in FCA_PLUGINS
        words = [word for word in words if not word.startswith("plugins=")]
        words.append(f"plugins=[{','.join(plugins())}]")
    if any(word.startswith("experiment=") for word in words):
        words.append("hydra.mode=RUN")  # this configuration alone, of an experiment that may sweep
    return shlex.join(["fca", "run", *words])


def _data_at_hand(values: dict[str, Any], command: str) -> ImageData:
    """The images of a configuration, if they need no download; else raises NotDownloaded."""
    dataset = values["dataset"]
    needs_download = isinstance(dataset, dict) and dataset.get("download")
    if not needs_download:
        return data_of(values)

    component(values, "dataset")  # its keys are checked all the same
    without_download = {**values, "dataset": {**dataset, "download": False}}
    try:
        return data_of(without_download)
    except FcaError as error:
        is_missing = error.args[0] == "dataset.root"
        if not is_missing:
            raise
        name = dataset.get("name") or str(dataset["_target_"]).rpartition(".")[2].lower()
        raise NotDownloaded(command, name) from error


def data_of(config: Mapping[str, Any] | DictConfig) -> ImageData:
    """The images of a configuration, listed once in a process."""
    loader = component(config, "dataset")
    limit = config["limit"]
    key = (id(loader), limit)  # equal nodes are one loader, which lives as long as the process
    if key not in _LOADED:
        data = loader.load()
        _LOADED[key] = data if limit is None else first_images(data, limit)
    return _LOADED[key]


MAX_TRIED = 20  # configurations of runs in which the images of a page are looked for
LISTS_ANY_FOLDER = ("fca.data.folder.", "fca.data.manifest.")  # loaders of whatever folder they get


def store_with_images(outputs: str | Path) -> Store:
    """The store of this folder, for pages: their pictures are made of the images, where a run read them."""
    store = Store(Path(outputs))
    return replace(store, images=partial(_listed_again, store))


def _listed_again(store: Store, fingerprint: str) -> ImageData | None:
    """The data set of this fingerprint, listed as the latest runs on it had it; None where it no longer exists.

    A store may come from elsewhere, and name any folder: only loaders of ours are called, none downloads, and none
    lists a folder or archive that this user has not listed before.
    """
    rows = store.rows()
    rows_of_data = rows[rows["fingerprint"] == fingerprint]
    latest_rows = rows_of_data.sort_values("finished", ascending=False).head(MAX_TRIED)

    tried: list[Any] = []
    for run_id in latest_rows["run_id"]:
        try:
            config = config_of(store.folder(run_id) / "config.yaml")
            values = _values(config, "dataset")
            loader = values["_target_"]
            if [values, config.limit] in tried or not loader.startswith("fca.data."):
                continue
            if loader.startswith(LISTS_ANY_FOLDER) and not is_known(values["root"]):
                continue

            tried.append([dict(values), config.limit])
            if "download" in values:
                config.dataset.download = False
            data = data_of(config)
            data = as_trained_on(data, fingerprint, data.group)
        except Exception as error:  # whatever is wrong there, a page without these pictures is better than none
            log.info("no images of %s from run %s: %s", fingerprint, run_id, error)
            continue
        if data.fingerprint == fingerprint:
            return data
    return None


def config_of(path: Path) -> DictConfig:
    """The configuration of a run. Raises DamagedFile for a file that fca did not write, see `read_yaml`."""
    values = read_yaml(path)
    if "${" in json.dumps(values, default=str):  # ours are resolved; this might read the environment
        raise DamagedFile(path, "refers to other values, as no configuration of a run does")
    return DictConfig(OmegaConf.create(values))


def _check_classes_of_model(model: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Raise FcaError for typed class keys of a model that has no weights whose logits they could name."""
    typed = {word.partition("=")[0].lstrip("+") for word in overrides}
    is_from_scratch = "weights" in model and model["weights"] is None
    if "model.classes" in typed and is_from_scratch and model.get("classes") is not None:
        allowed = "null without model.weights: a training gives a network from scratch the classes of its data"
        raise FcaError("model.classes", model["classes"], allowed, "leave it out, or add model.weights=PATH")


def _name_classes(model: dict[str, Any], data: ImageData) -> None:
    """Rewrite the entries of model.classes that were read as numbers or truth values as the data set's class keys."""
    classes = model.get("classes")
    if not isinstance(classes, list):
        return

    named_classes = []
    for value in classes:
        key = value if isinstance(value, str) else key_of(data.classes, value, "model.classes")
        named_classes.append(value if key is None else key)
    model["classes"] = named_classes


def _subset(values: Mapping[str, Any], data: ImageData) -> ClassSubset:
    """The classes that `subset` names or draws; all of them where it does neither."""
    ncl = values["ncl"]
    classes = values["classes"]
    sampler = values["sampler"]
    total = len(data.classes)

    if classes is not None:
        if ncl not in (None, len(classes)):
            allowed = f"{len(classes)}, as subset.classes has"
            raise FcaError("subset.ncl", ncl, allowed, "give only one of them")
        return named_subset(data.classes, classes)

    if ncl is None and sampler == "fca":  # made to draw: all classes need subset=all
        raise FcaError("subset.ncl", None, f"2 to {total} for subset=fca", "add subset.ncl=5, or take subset=all")
    if ncl is None:
        return full_set(total)
    return draw_subset(total, number_of_classes(ncl, total), values["seed"], sampler)
