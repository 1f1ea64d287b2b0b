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
_COMPONENTS: dict[str, Any] = {}  # node as JSON -> component: planning thousands of runs makes each one once


def component(config: Mapping[str, Any] | DictConfig, group: str, contract: type | None = None) -> Any:
    """The object that a group's node describes: `_target_` names its dataclass, and the other keys are its fields.

    Equal nodes give the same object, which is kept as long as the process lives.
    config:   a configuration that has the node `group`.
    contract: the protocol that the object must meet; None: the protocol of CONTRACTS for this group, if there is one.
    Raises FcaError for an unknown key, a wrong type or a missing value, naming it as the user would type it.
    """
    values = _node_values(config, group)
    key = group + json.dumps([values, plugins()], sort_keys=True)  # plugins decide which classes may be named
    if key not in _COMPONENTS:
        with _explaining_errors(values, group):
            new: Any = OmegaConf.to_object(typed(values, group))  # calls the dataclass
        check_values(type(new), vars(new), group)
        _check_contracts(new, values, group, contract or CONTRACTS.get(group))
        if isinstance(new, Checked):
            new.check()  # raises if its values contradict each other
        _COMPONENTS[key] = new
    return _COMPONENTS[key]


def _check_contracts(instance: Any, values: Mapping[str, Any], name: str, contract: type | None) -> None:
    """Raise FcaError if a component, or a component that it holds, lacks a member of its contract (a protocol).

    instance: the component.
    values:   the keys of its node in the configuration.
    name:     its group, for messages; for a component inside of a data set, its key, such as dataset.generator.
    contract: the protocol of the component; None: there is none to check.
    """
    if contract is not None:
        check_contract(f"{name}._target_", instance, contract)
    if contract is Analysis:  # besides its members, an analysis has to declare its findings for pages
        from fca.report.finding import study_findings  # imports the drawing libraries, which other groups do not need

        study_findings(instance)  # raises for a study that declares no findings

    contracts = instance.contracts if isinstance(instance, Holder) else {}  # field -> protocol of the component in it
    for key, value in values.items():
        is_component = isinstance(value, dict) and "_target_" in value
        if is_component:
            _check_contracts(getattr(instance, key), value, f"{name}.{key}", contracts.get(key))


@runtime_checkable
class Holder(Protocol):
    """A component that holds others; `contracts` has the protocol of each, by the key that holds it."""

    contracts: ClassVar[Mapping[str, type]]


@runtime_checkable
class Checked(Protocol):
    """A component that checks its values against each other."""

    def check(self) -> None:
        """Raise FcaError for values that do not fit each other."""


@contextmanager
def keys_of(group: str, instance: Any) -> Iterator[None]:
    """Make FcaErrors of the body name a field of a component as it is typed: task.budget in place of budget.

    group: the group of the component.
    instance: the component.
    """
    try:
        yield
    except FcaError as error:
        name, *value_allowed_step = error.args
        if name not in vars(instance):
            raise
        raise FcaError(f"{group}.{name}", *value_allowed_step) from error


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
    """The configuration of a command with an option of one group and some keys changed, for use in Python.

    root, group, name: conf/<root>.yaml is composed with <group>=<name>.
    keys:              keys of the group with their values; lr for recipe.lr. `component` checks them later.
    words:             further overrides, as typed.
    others:            keys at the top of the configuration, with their values.
    Raises FcaError for an unknown name, and for a value of a wrong kind.
    """
    check_choice(group, name, option_names(group))
    config = composed(root, [f"{group}={name}", *words])
    keys_of_group = {f"{group}.{key}": value for key, value in keys.items()}
    with open_dict(config):  # accepts unknown keys, which are refused later, with better messages
        for key, value in {**keys_of_group, **others}.items():
            try:
                plain_value = str(value) if isinstance(value, Path) else value  # YAML has no paths
                OmegaConf.update(config, key, plain_value)
                OmegaConf.select(config, key)  # raises if the value refers to a missing key
            except OmegaConfBaseException as error:
                raise FcaError(key, value, one_line(error), f"correct {key}") from error
    return config


def typed(values: Mapping[str, Any], name: str) -> Any:
    """A component's values as a node of OmegaConf that has the types of the component's class.

    A value that is itself a component (it has a `_target_`), such as the generator of a data set, becomes a typed node
    inside of this one. A value may still be missing (`???`).
    values: the keys of the component's node, `_target_` included.
    name: of the component, for messages.
    Raises FcaError for an unknown key and a value of a wrong type.
    """
    nested = {
        key: typed(value, f"{name}.{key}")
        for key, value in values.items()
        if isinstance(value, dict) and "_target_" in value
    }
    component_class = class_of(f"{name}._target_", values.get("_target_"))
    with _explaining_errors(values, name):
        field_values = {key: nested.get(key, value) for key, value in values.items() if key != "_target_"}
        for key in field_values.keys() & _text_fields(component_class):
            field_values[key] = _as_texts(field_values[key])  # YAML may have read a class named 0 as a number
        check_truths(component_class, field_values, name)  # refuses numbers, which OmegaConf would take for true

        schema = _schema(component_class).copy()
        for key in field_values.keys() & _mapping_fields(component_class):
            schema[key] = {}  # otherwise the values would be added to the default
        return OmegaConf.merge(schema, field_values)


@cache
def _text_fields(component_class: type) -> frozenset[str]:
    """The names of the fields whose type has texts only, such as str, list[str] or dict[str, str] | None."""
    leaf_types = {name: set(_leaf_types(hint)) for name, (hint, _) in rules_by_field(component_class).items()}
    return frozenset(name for name, types in leaf_types.items() if types <= {str, NoneType})


@cache
def _mapping_fields(component_class: type) -> frozenset[str]:
    """The names of the fields whose type is dict[...]."""
    return frozenset(name for name, (hint, _) in rules_by_field(component_class).items() if get_origin(hint) is dict)


def _leaf_types(hint: Any) -> Iterator[Any]:
    """Yield the types without arguments inside of a type: str and float in dict[str, list[float]]."""
    inner_hints = get_args(hint)
    if not inner_hints:
        yield hint
    for inner_hint in inner_hints:
        yield from _leaf_types(inner_hint)


def _as_texts(value: Any) -> Any:
    """The value of a field for texts, with truth values and numeric keys replaced by the texts that were typed.

    YAML reads true as a truth value. OmegaConf would turn it into the text True, which names another class or folder.
    OmegaConf also refuses the key 0 of {0: train}. Other numbers stay, as OmegaConf turns them into the right texts.
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


def _node_values(config: Mapping[str, Any] | DictConfig, group: str) -> Any:
    """The node of a group as a dictionary, with references such as ${seed} resolved.

    Raises FcaError for a plain value in place of the node. That happens if a YAML of the user has `dataset: digits`
    among its keys, and not in its list of defaults, where Hydra would load the option.
    """
    node = config[group]
    if not isinstance(node, dict | DictConfig):
        folder = "model@encoder" if group == "encoder" else group  # encoders are options of the group model
        step = f"choose it in the defaults list, `- override /{folder}: {node}`, or type {folder}={node}"
        raise FcaError(group, node, f"an option of the group {folder}; a YAML has it as a plain value", step)
    return node if isinstance(node, dict) else OmegaConf.to_container(node, resolve=True)


@contextmanager
def _explaining_errors(values: Mapping[str, Any], group: str) -> Iterator[None]:
    """Turn OmegaConf's errors in the body into FcaError, with the key as it is typed, its value and what is allowed.

    values: the keys of the node that the body reads, `_target_` included.
    group: the name of the node.
    """
    try:
        yield
    except OmegaConfBaseException as error:
        component_class = class_of(group, values["_target_"])
        full_key = getattr(error, "full_key", None) or ""
        key = full_key.partition("[")[0]  # an error about a value in a list names key[2]: the key of the list
        if not key:  # OmegaConf does not always name the key: find the first whose value has a wrong type
            key = next((name for name, value in values.items() if not _fits(component_class, name, value)), "")
        # the key may have dots, such as val.share; a missing value (`???`) is shown as None
        value = OmegaConf.select(OmegaConf.create(dict(values)), key, throw_on_missing=False)

        folder = group.rpartition(".")[2].replace("encoder", "model")  # encoders are options of the group model
        files = f"look at conf/{folder}/"
        if isinstance(error, ConfigKeyError):
            raise _unknown_field_error(component_class, group, key, value, files) from error

        first_line = str(error).splitlines()[0]
        allowed = _allowed_inside(component_class, key) or first_line
        inner_keys = _keys_inside(component_class, key)
        # a key that holds others is set by one of these: dataset.val.share=...
        example = f"{group}.{key}.{inner_keys[0]}" if inner_keys else f"{group}.{key}"
        # a list or range for a single value was perhaps meant as a sweep; None for other values
        sweep_step = one_at_a_time(f"{group}.{key}", as_typed(value))
        step = sweep_step or f"set {example}=... or {files}"
        raise FcaError(f"{group}.{key}", value, allowed, step) from error


def _unknown_field_error(component_class: type, group: str, key: str, value: Any, files: str) -> FcaError:
    """The error for a key that is not a field of a component's class; it suggests the most similar field.

    group, key, value: GROUP.KEY=VALUE was typed.
    files: the next step to suggest if no field is similar.
    """
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
    """What values a field may have, in words; None if the class does not declare such a field.

    component_class: the class that may declare the field; anything but a dataclass declares none.
    key: a field of the class; or, with a dot, a field of the dataclass that this field holds, such as val.share.
    """
    field, _, inner_key = key.partition(".")
    if not isinstance(component_class, type) or not is_dataclass(component_class):
        return None
    if field not in rules_by_field(component_class):
        return None
    if inner_key:
        type_of_field, _rule = rules_by_field(component_class)[field]
        return _allowed_inside(type_of_field, inner_key)
    return describe_allowed(component_class, field)


def _keys_inside(component_class: Any, key: str) -> list[str]:
    """The fields of the dataclass that a field holds, such as share and seed of val; empty for other fields.

    A type such as Val | None is searched for a dataclass, too.
    """
    if key not in rules_by_field(component_class):
        return []
    hint = rules_by_field(component_class)[key][0]  # the type of the field
    for inner_type in (hint, *get_args(hint)):
        if isinstance(inner_type, type) and is_dataclass(inner_type):
            return list(rules_by_field(inner_type))
    return []


def _fits(component_class: type, name: str, value: Any) -> bool:
    """Whether a value has the type that the class declares for this field."""
    if name == "_target_":  # names the class, and is no field
        return True
    try:
        OmegaConf.merge(_schema(component_class), {name: value})
    except OmegaConfBaseException:
        return False
    return True


@cache
def _schema(component_class: type) -> DictConfig:
    """An empty node with the fields and types of a class, to be filled with values.

    OmegaConf makes the nodes of frozen dataclasses read-only; this one can be written to.
    """
    schema = OmegaConf.structured(component_class)
    _make_writable(schema)
    return schema


def _make_writable(node: DictConfig) -> None:
    """Take the mark read-only from a node and from all nodes inside of it."""
    OmegaConf.set_readonly(node, None)
    for key in node:
        child = node._get_node(key)  # there is no public way to a child whose value is missing
        if isinstance(child, DictConfig):
            _make_writable(child)


_LISTED: dict[tuple[int, int | None], ImageData] = {}  # (id of the loader, limit) -> data, listed once per process


@dataclass(frozen=True)
class Job:
    """A configuration as objects: its task, the components that the task works with, and its planned runs.

    values: the resolved configuration, as plain values.
    command: the command line of this job alone.
    """

    task: Task
    context: RunContext
    plan: list[Run]
    values: Mapping[str, Any]
    command: str

    @property
    def chosen_classes(self) -> str | None:
        """A line with the keys of the classes that subset.classes lists; None if they were drawn, or all are used."""
        if self.values["subset"]["classes"] is None:
            return None
        data = self.context.data
        keys = [data.classes[index] for index in self.context.subset.classes]
        return f"classes of {data.name}: {choices_in_words(keys)} ({len(keys)} of {len(data.classes)})"

    @property
    def config(self) -> str:
        """The resolved configuration as YAML, to be stored beside every run.

        Its first line is a comment with the command, since a run in progress has no row that could show it. It is
        written only when a run begins, because that takes as long as planning does.
        """
        command = " ".join(self.command.split())  # on one line, as a comment must be
        return f"# {command}\n{OmegaConf.to_yaml(self.values)}"


class NotDownloaded(Exception):
    """A configuration that cannot be planned before its data set is downloaded."""

    def __init__(self, command: str, dataset: str) -> None:
        super().__init__(command, dataset)
        self.command = command
        self.dataset = dataset


def not_here(datasets: Sequence[str]) -> str:
    """A note that printed commands include finished runs on these data sets, which are not downloaded yet.

    >>> not_here(["cifar10", "cifar10"])
    'note: cifar10 is not here yet, and printing downloads nothing: its runs that are done are printed, too'
    """
    names = ", ".join(dict.fromkeys(datasets))
    return f"note: {names} is not here yet, and printing downloads nothing: its runs that are done are printed, too"


def job_of(config: DictConfig, overrides: list[str], *, download: bool = True) -> Job:
    """Check a whole configuration of `fca run` and plan it; this decodes no image and writes nothing to the store.

    config:    the composed configuration.
    overrides: the words that were typed, for the command and for messages.
    download:  whether to download a public data set that is not on this machine. If False, NotDownloaded is raised.
    Raises FcaError for a configuration that cannot be run.
    """
    values: Any = OmegaConf.to_container(config, resolve=True)
    check_root("run", values)
    has_model_keys = isinstance(values["model"], dict)  # otherwise `component` refuses the model below
    if has_model_keys:
        _check_classes_of_model(values["model"], overrides)
    command = _command(values, overrides)
    data = data_of(values) if download else _data_at_hand(values, command)
    if has_model_keys:
        _replace_classes_by_class_keys(values["model"], data)  # changes model.classes in `values`
    # in the order of the groups on a command line, so that the first of several faults is reported
    model = component(values, "model")
    encoder = component(values, "encoder")
    shift_by_label = {shift.label(): shift for shift in component(values, "shift").shifts()}  # drops duplicates
    context = RunContext(
        data=data,
        model=model,
        encoder=encoder,
        shifts=list(shift_by_label.values()),
        recipe=component(values, "recipe"),
        subset=_subset(values["subset"], data),
        seed=values["seed"],
        # Network: finetune the model if it has weights, else train it from scratch
        adaptation=Network() if values["adaptation"] is None else component(values, "adaptation"),
        compat=values["compat"],
        machine=component(values, "machine"),
        trainer=component(values, "trainer"),
        store=Store(Path(values["outputs"])),
        tracker=component(values, "logger"),
    )
    task = component(values, "task")
    with keys_of("task", task), keys_of("model", context.model):  # errors name task.KEY or model.KEY, as typed
        plan = task.plan(context)
    return Job(task, context, plan, values, command)


def _command(values: Mapping[str, Any], overrides: Sequence[str]) -> str:
    """The command line that runs this configuration alone, even if it is a point of a sweep.

    values: the resolved configuration.
    overrides: the words that were typed.
    """
    words = [word for word in overrides if not word.startswith("sweep.")]  # they decide how a sweep does its runs
    if set(plugins()) != set(values["plugins"]):  # FCA_PLUGINS adds some, and may not be set in another shell
        words = [word for word in words if not word.startswith("plugins=")]
        words.append(f"plugins=[{','.join(plugins())}]")
    if any(word.startswith("experiment=") for word in words):
        words.append("hydra.mode=RUN")  # an experiment may otherwise start its whole sweep
    return shlex.join(["fca", "run", *words])


def _data_at_hand(values: dict[str, Any], command: str) -> ImageData:
    """The images of a configuration, without any download.

    Raises NotDownloaded for a public data set that is not on this machine.
    values: the resolved configuration.
    command: its command line, which that error carries.
    """
    dataset = values["dataset"]
    if not (isinstance(dataset, dict) and dataset.get("download")):  # not a public set: nothing would be downloaded
        return data_of(values)

    component(values, "dataset")  # checks the keys as they were typed, before one is changed
    without_download = {**values, "dataset": {**dataset, "download": False}}
    try:
        return data_of(without_download)
    except FcaError as error:
        if error.args[0] != "dataset.root":  # the key that a loader names where files are missing
            raise
        # a data set without a key `name` is called by the name of its class
        name = dataset.get("name") or str(dataset["_target_"]).rpartition(".")[2].lower()
        raise NotDownloaded(command, name) from error


def data_of(config: Mapping[str, Any] | DictConfig) -> ImageData:
    """The images of a configuration, at most `limit` of every class and split; listed once per process."""
    loader = component(config, "dataset")
    limit = config["limit"]
    key = (id(loader), limit)  # equal nodes are one loader, which lives as long as the process
    if key not in _LISTED:
        data = loader.load()
        _LISTED[key] = data if limit is None else first_images(data, limit)
    return _LISTED[key]


MAX_RUNS_SEARCHED_FOR_IMAGES = 20
LOADERS_OF_ANY_FOLDER = ("fca.data.folder.", "fca.data.manifest.")


def store_with_images(outputs: str | Path) -> Store:
    """The store in this folder, for pages with pictures: its `images` lists the images that runs of the store read."""
    store = Store(Path(outputs))
    return replace(store, images=partial(_images_of, store))


def _images_of(store: Store, fingerprint: str) -> ImageData | None:
    """The data set with this fingerprint, from which pages take their pictures; None if it is not found.

    The runs on this data set have configurations in the store, which name its loader and folder. The latest of these
    runs are tried until one of the configurations gives the data set, with its images still on this machine.
    A store may come from a stranger, and its configurations may name any loader and folder. So only fca's own loaders
    are called (`_may_be_listed`), none downloads, and none lists a folder or archive that this user has not listed
    before.
    """
    rows = store.rows()
    rows = rows[rows["fingerprint"] == fingerprint].sort_values("finished", ascending=False)
    tried: list[Any] = []  # pairs of the keys of `dataset` and the limit; many runs have the same pair
    for run_id in rows["run_id"].head(MAX_RUNS_SEARCHED_FOR_IMAGES):
        try:
            config = config_of(store.folder(run_id) / "config.yaml")
            values = _node_values(config, "dataset")
            if [values, config.limit] in tried or not _may_be_listed(values):
                continue
            tried.append([dict(values), config.limit])

            if "download" in values:
                config.dataset.download = False
            data = data_of(config)
            # A set without splits is all test images. A training splits it, which gives another fingerprint. If the
            # wanted fingerprint is of such a split, draw it again. If data.group names a column, images of a group stay
            # in one split
            data = as_trained_on(data, fingerprint, data.group)
        except Exception as error:  # whatever is wrong there, a page without these pictures is better than no page
            log.info("no images of %s from run %s: %s", fingerprint, run_id, error)
            continue
        if data.fingerprint == fingerprint:  # otherwise the files have changed since
            return data
    return None


def _may_be_listed(dataset: Mapping[str, Any]) -> bool:
    """Whether a stored configuration names one of fca's loaders, and only a folder that this user has listed before.

    dataset: the keys of its node.
    """
    loader = dataset["_target_"]
    if not loader.startswith("fca.data."):
        return False
    return not loader.startswith(LOADERS_OF_ANY_FOLDER) or has_index(dataset["root"])


def config_of(path: Path) -> DictConfig:
    """The configuration that is stored beside a run. Raises DamagedFile for a file that fca did not write."""
    values = read_yaml(path)
    if "${" in json.dumps(values, default=str):  # fca's are resolved; this one might read the environment
        raise DamagedFile(path, "refers to other values, as no configuration of a run does")
    return DictConfig(OmegaConf.create(values))


def _check_classes_of_model(model: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Raise FcaError if model.classes, the class keys of a model's logits, was typed for a model without weights.

    A value from conf/model is allowed: cifar_resnet20.yaml, for one, lists the classes of the published weights, which
    do not matter for a training from scratch.
    model: the keys of its node.
    overrides: the words that were typed.
    """
    typed_keys = {word.partition("=")[0].lstrip("+") for word in overrides}
    is_from_scratch = "weights" in model and model["weights"] is None
    if "model.classes" in typed_keys and is_from_scratch and model.get("classes") is not None:
        allowed = "null without model.weights: a training gives a network from scratch the classes of its data"
        raise FcaError("model.classes", model["classes"], allowed, "leave it out, or add model.weights=PATH")


def _replace_classes_by_class_keys(model: dict[str, Any], data: ImageData) -> None:
    """Replace values in model.classes that YAML read as numbers or truth values by the class keys of the data set.

    A folder named 007 is the class key "007", which YAML reads as 7.
    model: the keys of its node; changed in place.
    """
    classes = model.get("classes")
    if not isinstance(classes, list):
        return

    spelled: list[Any] = []
    for value in classes:
        key = value if isinstance(value, str) else key_of(data.classes, value, "model.classes")
        spelled.append(value if key is None else key)  # None: the model may have classes that the data set lacks
    model["classes"] = spelled


def _subset(subset: Mapping[str, Any], data: ImageData) -> ClassSubset:
    """The classes that the keys of `subset` select: the listed classes, drawn classes, or all.

    subset: its keys. `classes` lists classes; `ncl` is their number, or their share of all classes; `seed` and
            `sampler` draw them (sampler fca: as the released program of the Few-Class Arena).
    data:   the data set from whose classes they select.
    Raises FcaError for keys that contradict each other, and NoSuchSubset for a number that cannot be drawn.
    """
    ncl = subset["ncl"]
    classes = subset["classes"]
    sampler = subset["sampler"]
    total = len(data.classes)
    if classes is not None:
        if ncl not in (None, len(classes)):
            allowed = f"{len(classes)}, as subset.classes has"
            raise FcaError("subset.ncl", ncl, allowed, "give only one of them")
        return named_subset(data.classes, classes)
    if ncl is None and sampler == "fca":  # this sampler always draws, so it needs a number
        raise FcaError("subset.ncl", None, f"2 to {total} for subset=fca", "add subset.ncl=5, or take subset=all")
    if ncl is None:
        return full_set(total)
    return draw_subset(total, number_of_classes(ncl, total), subset["seed"], sampler)
