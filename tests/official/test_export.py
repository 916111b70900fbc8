"""The official commands on an exported folder give what they give on the original one."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path

import pytest
from export_support import run_official
from support import DUMPS, SHARED, call, read_csv, requires_shared, tensor, write_dump

from msprobe_nb.formats.exporter import export_run
from msprobe_nb.formats.importer import import_run

pytest.importorskip("msprobe")
pytestmark = pytest.mark.official

HERE = Path(__file__).parent
PLACES = {"dump_data_dir"}  # columns of a graph database that hold a folder


def exported(root: Path, folder: Path) -> Path:
    """The recording after a way through our store."""
    store = import_run(root, folder.with_name(f"{folder.name}.zarr"), progress=False)
    return export_run(store, folder, progress=False)


def results(folder: Path) -> list[object]:
    """The content of all result files, without what names the moment or the place."""
    found: list[object] = []
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".csv":
            found.append(read_csv(path))
        elif path.suffix == ".db":
            found.append(tables(path))
        elif path.suffix == ".json":
            found.append(json.dumps(json.loads(path.read_text())))
    return found


def tables(path: Path) -> dict[str, list[str]]:
    """All rows of a database, sorted, since the tool fills it from several processes."""
    with sqlite3.connect(path) as database:
        names = [name for (name,) in database.execute("select name from sqlite_master")]
        rows = {}
        for name in sorted(names):
            try:
                cursor = database.execute(f'select * from "{name}"')
            except sqlite3.OperationalError:
                continue  # an index
            titles = [column[0] for column in cursor.description]
            rows[name] = sorted(
                repr([cell for t, cell in zip(titles, row, strict=True) if t not in PLACES])
                for row in cursor
            )
    return rows


def same_results(sides: dict[str, tuple[list[str], ...]], folder: Path) -> dict[str, list[object]]:
    """Assert that commands give the same on the original and the exported folders.

    `sides` has, under each case's name, the command for the originals and for the exports.
    """
    commands = []
    for case, pair in sides.items():
        for side, words in zip(("original", "exported"), pair, strict=True):
            (folder / f"{case}_{side}").mkdir()
            commands.append([*words, "-o", str(folder / f"{case}_{side}")])
    ends = run_official(commands, folder)
    given = {}
    for at, case in enumerate(sides):
        assert ends[2 * at] == ends[2 * at + 1] != f"ended with {int(signal.SIGALRM)}", case
        given[case] = results(folder / f"{case}_original")
        assert results(folder / f"{case}_exported") == given[case], case
    return given


def nan_recording(folder: Path) -> Path:
    """Two ranks with a module each; a NaN appears on the second."""
    module, calls = "Module.m.M.forward.0", ("Torch.exp.0.forward", "Torch.log.0.forward")
    for rank in range(2):
        values = [1.0, float("nan") if rank else 2.0]
        data = {
            name: call([tensor()], [tensor(value=value)])
            for name, value in zip(calls, values, strict=True)
        }
        data[module] = call([tensor()], [tensor(value=values[1])], parameters={})
        pack = write_dump(folder / f"rank{rank}", data, level="mix")
        stack = {
            str(at): [[name], [f"File m.py, line {at}, in f, \n y = x"]]
            for at, name in enumerate(data)
        }
        (pack / "stack.json").write_text(json.dumps(stack, indent=1))
        tree = {module: None, **dict.fromkeys(calls, module)}
        (pack / "construct.json").write_text(json.dumps(tree, indent=1))
    return folder


def test_official_commands_cannot_tell_an_export_from_its_original(tmp_path):
    """One case of each command; the others are run by ``make test-official``."""
    edge = DUMPS / "edge_tensor_L1"
    originals = {"target": edge / "target", "golden": edge / "golden"}
    originals["nan"] = nan_recording(tmp_path / "nan/step0").parent
    copies = {name: exported(root, tmp_path / f"of_{name}") for name, root in originals.items()}
    file = "step0/rank0/dump.json"
    both = (originals, copies)
    sides = {
        "compare": tuple(
            ["compare", "-tp", f"{of['target']}/{file}", "-gp", f"{of['golden']}/{file}"]
            for of in both
        ),
        "graph": tuple(["graph_visualize", "-tp", f"{of['nan']}/step0", "-oc"] for of in both),
        "overflow": tuple(["overflow_check", "-i", f"{of['nan']}/step0"] for of in both),
    }
    given = same_results(sides, tmp_path)
    assert len(given["compare"][0]) == 108
    assert len(given["graph"][0]["tb_nodes"]) >= 6
    assert "rank_1" in given["overflow"][0]


# ---------------------------------------------------------------- all of them


def packs(root: Path) -> dict[str, Path]:
    """Folders below a recording's root that hold a dump file, by their place."""
    found = [p for name in ("dump.json", "debug.json") for p in root.rglob(name)]
    return {p.parent.relative_to(root).as_posix(): p.parent for p in found}


def pairs() -> list[tuple[str, Path, Path]]:
    """(case, target, golden) of all pairs of single recordings."""
    found = []
    for case in sorted((SHARED / "compare/dumps").rglob("target")):
        golden = case.parent / "golden"
        both = packs(case).keys() & packs(golden).keys()
        for place in sorted(both):
            name = f"{case.parent.relative_to(SHARED / 'compare/dumps')}/{place}"
            found.append((Path(name).as_posix().replace("/", "_"), case / place, golden / place))
    return found


@requires_shared
@pytest.mark.official_all
@pytest.mark.parametrize("part", range(4))
def test_every_pair_compares_alike(part, tmp_path):
    sides = {}
    for case, target, golden in pairs()[part::4]:
        copies = []
        for side, root in (("target", target), ("golden", golden)):
            (copy,) = packs(exported(root, tmp_path / f"of_{case}_{side}")).values()
            copies.append(copy)
        name = "dump.json" if (target / "dump.json").exists() else "debug.json"
        sides[case] = tuple(
            ["compare", "-tp", str(a / name), "-gp", str(b / name)]
            for a, b in ((target, golden), copies)
        )
    given = same_results(sides, tmp_path)
    assert sum(map(bool, given.values())) > 5


GRAPHS = {
    "stat": ("stat_a", "stat_b", "-oc"),
    "tensor": ("tensor_a", "tensor_b"),
    "md5": ("md5_a", "md5_b"),
    "structure": ("struct_a", "struct_b"),
    "fuzzy": ("gelu2", "stat_a", "-fm"),
    "nan": ("nan1", "stat_a", "-oc"),
    "ranks": ("dist_ok", "dist_nan", "-oc"),
    "micro": ("micro2", None),
    "groups": ("dist_group", None, "-oc"),
    "send": ("dist_sr", None, "-oc"),
    "recompute": ("recompute", None),
    "modules": ("l0", None),
    "p2p": ("../p2p_case", None),
}


@requires_shared
@pytest.mark.official_all
def test_every_graph_is_alike(tmp_path):
    root = SHARED / "graph/dumps"
    used = {name for target, golden, *_ in GRAPHS.values() for name in (target, golden) if name}
    copies = {name: exported(root / name, tmp_path / f"of_{Path(name).name}") for name in used}
    sides = {}
    for case, (target, golden, *flags) in GRAPHS.items():
        step = [] if golden is None or (root / target).name == "dist_ok" else ["step0"]
        sides[case] = tuple(
            [
                *("graph_visualize", "-tp", str(Path(of[target], *step))),
                *(("-gp", str(Path(of[golden], *step))) if golden else ()),
                *flags,
            ]
            for of in ({name: root / name for name in used}, copies)
        )
    given = same_results(sides, tmp_path)
    assert all(given.values())


@requires_shared
@pytest.mark.official_all
def test_every_overflow_check_is_alike(tmp_path):
    steps = sorted(p for p in (SHARED / "graph/overflow_cases").iterdir() if p.is_dir())
    steps += [SHARED / f"graph/dumps/{name}" for name in ("dist_nan/step0", "dist_nan/step1")]
    steps += [SHARED / "graph/dumps/dist_sr/step0"]
    sides = {}
    for step in steps:
        case = "_".join(step.parts[-2:])
        copy = exported(step, tmp_path / f"of_{case}")
        (place,) = copy.iterdir()
        sides[case] = tuple(["overflow_check", "-i", str(of)] for of in (step, place))
    given = same_results(sides, tmp_path)
    assert sum(map(bool, given.values())) > 10
