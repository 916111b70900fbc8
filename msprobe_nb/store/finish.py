"""Writing the index of a pack: what makes it readable by any Zarr reader.

``docs/format.md`` describes the result; :mod:`.reader` is the other half.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe_nb.store import layout
from msprobe_nb.store.index import KINDS, ROLES, STATISTICS, VALUE_KINDS, Index, Nodes
from msprobe_nb.store.tables import (
    FACTS,
    Records,
    TensorTable,
    records_of,
    records_of_index,
    table_of,
    table_of_index,
)

if TYPE_CHECKING:
    from msprobe_nb.store.writer import PackWriter


def write_index(writer: PackWriter) -> dict[str, Any]:
    """Write the index of a pack whose rows a writer holds; return the attributes of its group."""
    table = table_of(writer.tensors, writer.edges)
    records = records_of(writer.nodes, writer.stacks, writer.tensors, table.exact)
    return _write(writer.path, table, records, writer.attributes)


def write_pack(path: Path, index: Index, nodes: Nodes, attributes: dict[str, Any]) -> None:
    """Write a complete pack without tensor data from columns that are already there.

    Parameters
    ----------
    path : Path
        Folder ``<run>/step<N>/rank<R>``.
    index, nodes
        The columns.
    attributes : dict
        Facts of the pack.
    """
    path.mkdir(parents=True, exist_ok=True)
    table = table_of_index(index)
    facts = _write(path, table, records_of_index(index, nodes, table.exact), attributes)
    blob = path / "blob"
    (blob / "c").mkdir(parents=True, exist_ok=True)
    layout.write_atomic(blob / layout.GROUP, layout.encode_json(layout.blob_metadata(0)))
    layout.write_atomic(path / layout.GROUP, layout.group_metadata(facts))


def _write(
    path: Path, table: TensorTable, records: Records, attributes: dict[str, Any]
) -> dict[str, Any]:
    axes = [f"axis_{at}" for at in range(table.facts.shape[1] - len(FACTS))]
    layout.write_array(path, "tensor", table.name, ["tensor"])
    layout.write_array(path, "byte_offset", table.byte_offset, ["tensor"])
    layout.write_array(path, "byte_count", table.byte_count, ["tensor"])
    layout.write_array(path, "statistics", table.statistics, ["tensor", "statistic"], STATISTICS)
    layout.write_array(path, "facts", table.facts, ["tensor", "fact"], [*FACTS, *axes])
    content = np.frombuffer(layout.encode_json(records), np.uint8)
    layout.write_array(path, layout.RECORDS, content, ["record_byte"])
    return {
        **attributes,
        "format": layout.PACK_FORMAT,
        "version": layout.VERSION,
        "complete": True,
        "dtypes": table.dtypes,
        "dtype_labels": table.dtype_labels,
        "types": table.types,
        "roles": ROLES,
        "kinds": (*KINDS, "component"),
        "value_kinds": VALUE_KINDS,
    }
