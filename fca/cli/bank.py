"""`fca bank`: an item bank that an analysis fitted, as one file to ship and cite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fca.cli import Words, refused
from fca.cli.show import check_store
from fca.store import Store
from fca.studies.irt.bank import bank_id, origin_of, read_bank, saved_banks, write_bank
from fca.studies.not_estimable import log_bank_priors
from fca.types import FcaError


def main(arguments: Sequence[str]) -> int:
    """List the banks of a store, or write one to a file; exit code 2 for what cannot be written."""
    parser = Words(prog="fca bank", description=f"{__doc__} Without an id: the banks there are.")
    parser.add_argument("id", nargs="?", help="of a saved table irt_items: fca analyse analysis=irt")
    parser.add_argument("file", nargs="?", help="where to write it (default: bank-ID.json)")
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument("--cite", help="how to cite it, kept in the file")
    parser.add_argument("--licence", help="of its parameters, kept in the file")
    try:
        options = parser.parse_args(arguments)
        check_store(options.outputs)
        store = Store(Path(options.outputs))
        if options.id is None:
            print(*_listed(store), sep="\n")
            return 0
        path = Path(options.file or f"bank-{options.id}.json")
        if path.suffix != ".json":
            raise FcaError("file", path, "a name that ends in .json", "rename it")
        write_bank(store, options.id, path, options.cite, options.licence)
    except FcaError as error:
        return refused(error)
    log_bank_priors(str(path), origin_of(store, str(path)).not_estimable)
    print(f"{path}: {len(read_bank(store, str(path))):,} items; identity {bank_id(str(path))}; use: task.bank={path}")
    return 0


def _listed(store: Store) -> list[str]:
    """A line a bank: its id, data sets, items and model."""
    lines = []
    for table_id in saved_banks(store):
        try:
            items = read_bank(store, table_id)
        except FcaError as error:  # damaged, or of several scales: no bank for a test
            lines.append(f"{table_id}  cannot be used: {error}")
            continue
        sets = ", ".join(sorted(set(items["dataset"].astype(str))))
        lines.append(f"{table_id}  {sets}: {len(items):,} items, {items['irt_model'].iloc[0]}")
    return lines or ["no banks yet; make one: fca analyse analysis=irt"]
