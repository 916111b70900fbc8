"""The same calls over many ranks: one table for each metric, one column for each rank.

Source of the layout: specification 02, section 8. Where a metric says nothing (an argument, a
checksum, NaN) the recorded values stand in its place, so that the groups and peers of
communication calls can be read across ranks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe_nb.comparison import statistics, tensors
from msprobe_nb.comparison.official_columns import CONSISTENT, NPU_NAME
from msprobe_nb.comparison.tables import Tables
from msprobe_nb.comparison.yaml_file import read_yaml
from msprobe_nb.errors import FormatError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from msprobe_nb.comparison.result import Comparison

_SAYS_NOTHING = ("N/A", "unsupported", "Nan")
_TARGET_VALUE, _GOLDEN_VALUE = "NPU max", "Bench max"
_METRICS = frozenset((*tensors.COLUMNS, *statistics.COLUMNS, CONSISTENT))


class MergedResults(Tables):
    """Metric -> DataFrame with the column ``NPU Name`` and one column for each rank.

    Attributes
    ----------
    notes : list of str
        Files that were left aside, calls that a rank does not have.
    """

    def to_xlsx(self, path: str | os.PathLike[str]) -> Path:
        """Write one sheet for each metric.

        Parameters
        ----------
        path : path
            An ``.xlsx`` file, or a folder that gets ``multi_ranks_compare_merge_<time>.xlsx``.
        """
        from msprobe_nb.spreadsheet import sheet_slices, write_workbook

        target = Path(path)
        if target.suffix != ".xlsx":
            stamp = datetime.now().strftime("%Y%m%d%H%M%S")
            target = target / f"multi_ranks_compare_merge_{stamp}.xlsx"
        sheets = (
            (name, list(table.columns), table.iloc[rows].itertuples(index=False, name=None))
            for metric, table in self.items()
            for name, rows in sheet_slices(len(table), metric)
        )
        return write_workbook(target, sheets)

    def summary(self) -> str:
        """A few lines of text: what was merged."""
        if not self:
            return "nothing to merge"
        table = next(iter(self.values()))
        columns = [column for column in table.columns if column != NPU_NAME]
        lines = [f"{len(table)} values over {', '.join(columns)}: {', '.join(self)}"]
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


@dataclass(frozen=True, slots=True)
class MergeConfig:
    """What to merge.

    Attributes
    ----------
    apis : list of str
        Beginnings or inner parts of names that end at a dot: ``Distributed`` or
        ``Distributed.all_reduce.0.forward``.
    metrics : list of str, or None
        Columns of the result; None for all metrics.
    """

    apis: list[str]
    metrics: list[str] | None = None


def read_merge_config(path: str | os.PathLike[str]) -> MergeConfig:
    """The official configuration file: YAML with ``api`` and, optionally, ``compare_index``.

    Raises
    ------
    FormatError
        The file is no such YAML.
    """

    def refuse(key: str) -> FormatError:
        return FormatError(
            "a list of texts is needed here",
            file=path,
            key=key,
            remedy="Write for example 'api: [Distributed.all_reduce]'",
        )

    content, _ = read_yaml(path, "merge configuration")
    if not isinstance(content, dict) or not _is_texts(content.get("api")) or not content["api"]:
        raise refuse("api")
    metrics = content.get("compare_index")
    if metrics is not None and not _is_texts(metrics):
        raise refuse("compare_index")
    return MergeConfig(content["api"], metrics or None)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def merge_results(
    source: str | os.PathLike[str] | Comparison | Sequence[Any],
    apis: str | Sequence[str] | MergeConfig,
    metrics: str | Sequence[str] | None = None,
) -> MergedResults:
    """The results of several ranks side by side.

    Parameters
    ----------
    source : path, Comparison or sequence of them
        A folder with result files of several ranks (``.csv`` or ``.xlsx``, ours or the official
        tool's); a comparison of several ranks; or a list of comparisons and result files. A file
        whose name tells no rank has its place in the list as rank.
    apis : str, sequence of str or MergeConfig
        Calls to show, see :class:`MergeConfig`.
    metrics : str or sequence of str, optional
        Columns of the result; all metrics by default, ``Result`` for check values.

    Returns
    -------
    MergedResults
        Tables in order of name; None where a rank does not have the value. Of a comparison with
        several steps the columns are named ``step<s>_rank<r>``.

    Raises
    ------
    UsageError
        Fewer than two ranks, an unknown metric, or no call of these names.
    """
    if isinstance(apis, MergeConfig):
        return merge_results(source, apis.apis, metrics or apis.metrics)
    wanted = [apis] if isinstance(apis, str) else list(apis)
    chosen = [metrics] if isinstance(metrics, str) else metrics
    results, notes, where = _results(source)
    if len(results) < 2:
        raise UsageError(
            f"results of {len(results)} rank(s) found, merging needs two or more",
            file=where,
            remedy="Give the folder with compare_result_rank0_..., compare_result_rank1_... files",
        )
    selected = {}
    for column, frame in results.items():
        chosen = _check_metrics(chosen, frame, column, where)
        rows = _selection(frame, wanted)
        missing = [api for api in wanted if not _selection(frame, [api]).any()]
        notes += [f"{column} has no call {api}" for api in missing]
        selected[column] = frame[rows]
    if not any(len(frame) for frame in selected.values()):
        raise UsageError(f"no rank has a call {', '.join(wanted)}", file=where)
    return MergedResults({name: _merged(selected, name) for name in chosen or ()}, notes)


def _results(source: Any) -> tuple[dict[str, pd.DataFrame], list[str], str | None]:
    """Column name -> result, notes, and where they are from."""
    from msprobe_nb.comparison.official_read import find_rank_files, rank_of, read_result
    from msprobe_nb.comparison.result import Comparison

    if isinstance(source, Comparison):
        return _parts(source), [], source.target_url
    if isinstance(source, (str, os.PathLike)):
        found, notes = find_rank_files(Path(source))
        results = {f"rank{files.rank}": read_result(files.paths) for files in found}
        return results, notes, os.fspath(source)
    results = {}
    for at, item in enumerate(source):
        if isinstance(item, Comparison):
            results.update(_parts(item))
        else:
            results[f"rank{rank_of(Path(item), at)}"] = read_result(Path(item))
    return results, [], None


def _parts(comparison: Comparison) -> dict[str, pd.DataFrame]:
    from msprobe_nb.comparison.official_xlsx import official_frame

    steps = len(comparison.steps) > 1
    return {
        f"step{j.part.step}_rank{j.part.rank}" if steps else f"rank{j.part.rank}": official_frame(j)
        for j in comparison.judged
    }


def _check_metrics(
    chosen: Sequence[str] | None, frame: pd.DataFrame, column: str, where: str | None
) -> Sequence[str]:
    """The metrics to merge; those of the first result when none were chosen."""
    if chosen is None:
        found = [name for name in frame.columns if name in _METRICS]
        return found if found != [CONSISTENT] else ["Result"]
    unknown = [name for name in chosen if name not in frame.columns]
    if unknown:
        raise UsageError(
            f"the result of {column} has no column {', '.join(unknown)}",
            file=where,
            remedy=f"It has {', '.join(name for name in frame.columns[2:])}",
        )
    return chosen


def _selection(frame: pd.DataFrame, apis: Sequence[str]) -> np.ndarray:
    parts = [f"{api}." for api in apis]
    names = frame[NPU_NAME].astype(str)
    return np.array([any(part in name for part in parts) for name in names], bool)


def _merged(selected: Mapping[str, pd.DataFrame], metric: str) -> pd.DataFrame:
    """One metric of all ranks; a name that occurs twice is joined in order of occurrence."""
    import pandas as pd

    columns = []
    for column, frame in selected.items():
        occurrence = frame.groupby(NPU_NAME).cumcount()
        key = pd.MultiIndex.from_arrays([frame[NPU_NAME], occurrence])
        columns.append(pd.Series(_values(frame, metric), index=key, name=column, dtype=object))
    table = pd.concat(columns, axis=1, sort=False).sort_index()
    table = table.astype(object).where(table.notna(), None)
    table.insert(0, NPU_NAME, [name for name, _ in table.index])
    return table.reset_index(drop=True)


def _values(frame: pd.DataFrame, metric: str) -> list[Any]:
    values = frame[metric].tolist()
    if _TARGET_VALUE not in frame or _GOLDEN_VALUE not in frame:
        return values
    ours, theirs = frame[_TARGET_VALUE].tolist(), frame[_GOLDEN_VALUE].tolist()
    return [
        f"NPU:{_shown(x)}  Bench:{_shown(y)}" if value in _SAYS_NOTHING else value
        for value, x, y in zip(values, ours, theirs, strict=True)
    ]


def _shown(value: Any) -> str:
    """A recorded value; files do not tell whether a whole number was an integer or a float."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
