"""A compressed copy of a run.

Compression costs 5 to 9 times the writing time, so it is a later choice and never happens while
recording.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numcodecs import Zstd

from msprobe_nb.errors import UsageError
from msprobe_nb.store import layout
from msprobe_nb.store.blob import Blob
from msprobe_nb.store.reader import StorePack
from msprobe_nb.store.sources import LocalSource, local_path

if TYPE_CHECKING:
    from msprobe_nb.store.run import Run


def compact(run: Run, path: str | os.PathLike[str], level: int) -> Run:
    """Write a zstd-compressed copy of a run store; see :meth:`Run.compact`."""
    target = Path(local_path(path))
    packs = [
        (pack, pack.source)
        for pack in run
        if isinstance(pack, StorePack) and isinstance(pack.source, LocalSource)
    ]
    if len(packs) != len(run) or not run.complete or run.depth != "root":
        raise UsageError(
            "only a complete local run store can be compacted",
            file=run.url,
            remedy="Import the recording first (msprobe_nb.import_run)",
        )
    if target.exists():
        raise UsageError("the path exists", file=target, remedy="Choose another one")
    growing = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        shutil.copytree(run.url, growing, ignore=shutil.ignore_patterns("blob"))
        for pack, source in packs:
            blob = growing / f"step{pack.step}" / f"rank{pack.rank}" / "blob"
            _compress(source, blob, level)
        os.replace(growing, target)
    finally:
        shutil.rmtree(growing, ignore_errors=True)
    from msprobe_nb.store.open import open_store

    return open_store(LocalSource(target))


def _compress(source: LocalSource, blob: Path, level: int) -> None:
    """Write one blob again with zstd chunks."""
    import msgspec

    size = msgspec.json.decode(source.read(f"blob/{layout.GROUP}"))["shape"][0]
    reader, encode = Blob(source, complete=True), Zstd(level).encode
    (blob / "c").mkdir(parents=True)
    for shard in range(-(-size // layout.SHARD_BYTES)):
        lengths: list[int] = []
        with open(blob / "c" / str(shard), "wb") as file:
            start = shard * layout.SHARD_BYTES
            for at in range(start, min(size, start + layout.SHARD_BYTES), layout.CHUNK_BYTES):
                part = reader.read(at, min(layout.CHUNK_BYTES, size - at))
                padded = np.zeros(layout.CHUNK_BYTES, np.uint8)
                padded[: part.size] = part
                packed = encode(padded)
                lengths.append(len(packed))
                file.write(packed)
            file.write(layout.shard_table(lengths))
    metadata = layout.encode_json(layout.blob_metadata(size, level))
    layout.write_atomic(blob / layout.GROUP, metadata)
