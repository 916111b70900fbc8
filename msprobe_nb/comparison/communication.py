"""How ranks hand values to each other: the communication calls of all ranks, put together.

Calls belong together when they are of the same kind among the same ranks and equally many of these
came before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msprobe_nb.store.index import INPUT, Index
from msprobe_nb.store.pack import Pack

_STARTS = ("Distributed.", "MintDistributed.", "communication.comm_func.")
_SENDS = {"send", "isend", "send_object_list"}
_RECEIVES = {"recv", "irecv", "recv_object_list"}
_FROM_ONE = {"broadcast", "scatter", "broadcast_object_list", "scatter_object_list"}
_TO_ONE = {"reduce", "gather", "gather_object"}
_ROOTS = (".src", ".dst", ".group_src", ".group_dst")
# Position of the peer or root when it is not given by name.
_ROOT_AT = {"scatter": 2, "gather": 2, "scatter_object_list": 2, "gather_object": 2}


class Exchange(NamedTuple):
    """Calls of several ranks that belong together.

    Attributes
    ----------
    sources : list of (rank, call)
        Those whose inputs go to the others.
    targets : list of (rank, call)
        Those whose outputs may come from them.
    """

    sources: list[tuple[int, int]]
    targets: list[tuple[int, int]]


class _Call(NamedTuple):
    rank: int
    at: int
    root: int | None


def is_communication(name: str) -> bool:
    """Whether a call hands values to other ranks."""
    return name.startswith(_STARTS)


def exchanges(packs: Mapping[int, Pack]) -> list[Exchange]:
    """What the communication calls of all ranks of one step hand to each other.

    Parameters
    ----------
    packs : mapping of rank to Pack
    """
    collective: dict[tuple[str, tuple[int, ...], int], list[_Call]] = defaultdict(list)
    sent: dict[tuple[int, int, int], tuple[int, int]] = {}
    received: dict[tuple[int, int, int], tuple[int, int]] = {}
    for rank, pack in packs.items():
        seen: dict[tuple[str, tuple[int, ...]], int] = defaultdict(int)
        peers: dict[tuple[int, int], int] = defaultdict(int)
        for at, rows in _communication_rows(pack):
            api = _api(pack.nodes.name[at])
            pairs = _point_to_point(pack.index, api, rows)
            for outward, peer in pairs:
                route = (rank, peer) if outward else (peer, rank)
                key = (*route, peers[(int(outward), peer)])
                peers[(int(outward), peer)] += 1
                (sent if outward else received)[key] = (rank, at)
            if not pairs:
                group = _group(pack.index, rows) or tuple(sorted(packs))
                number = seen[(api, group)]
                seen[(api, group)] += 1
                call = _Call(rank, at, _root(pack.index, api, rows))
                collective[(api, group, number)].append(call)
    found = [
        Exchange([place], [received[route]]) for route, place in sent.items() if route in received
    ]
    return found + [_collective(api, calls) for (api, _, _), calls in collective.items()]


def _api(name: str) -> str:
    """The bare name of a communication call: ``all_reduce``."""
    prefix = next(start for start in _STARTS if name.startswith(start))
    return name[len(prefix) :].split(".", 1)[0]


def _communication_rows(pack: Pack) -> Iterable[tuple[int, list[int]]]:
    """(call, its input rows) of every communication call, in recorded order."""
    rows_of: dict[int, list[int]] = {
        at: [] for at, node in enumerate(pack.nodes.name) if is_communication(node)
    }
    index = pack.index
    for row, (node, role) in enumerate(zip(index.node.tolist(), index.role.tolist(), strict=True)):
        if role == INPUT and node in rows_of:
            rows_of[node].append(row)
    return rows_of.items()


def _point_to_point(index: Index, api: str, rows: list[int]) -> list[tuple[bool, int]]:
    """(whether it sends, peer) of each transfer; empty for a collective call."""
    pairs = []
    for row in rows:
        detail = index.detail.get(row, {})
        if "peer" in detail and isinstance(detail["peer"], int):
            pairs.append(("send" in str(detail.get("op")), detail["peer"]))
    if not pairs and (api in _SENDS or api in _RECEIVES):
        peer = _root(index, api, rows)
        return [] if peer is None else [(api in _SENDS, peer)]
    return pairs


def _root(index: Index, api: str, rows: list[int]) -> int | None:
    """The source or destination of a call, or None."""
    for row in rows:
        if index.name[row].endswith(_ROOTS) and _is_rank(index.value.get(row)):
            return int(index.value[row])
    if api in _SENDS | _RECEIVES | _FROM_ONE | _TO_ONE:
        ending = f".input.{_ROOT_AT.get(api, 1)}"
        for row in rows:
            if index.name[row].endswith(ending) and _is_rank(index.value.get(row)):
                return int(index.value[row])
    return None


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _group(index: Index, rows: list[int]) -> tuple[int, ...]:
    """The ranks of a call's process group, or nothing when they were not recorded."""
    for row in rows:
        ranks = index.detail.get(row, {}).get("group_ranks")
        if isinstance(ranks, list) and ranks and all(map(_is_rank, ranks)):
            return tuple(sorted(ranks))
    return ()


def _collective(api: str, calls: list[_Call]) -> Exchange:
    root = next((call.root for call in calls if call.root is not None), None)
    everyone = [(call.rank, call.at) for call in calls]
    at_root = [(call.rank, call.at) for call in calls if root in (None, call.rank)]
    return Exchange(
        at_root if api in _FROM_ONE else everyone, at_root if api in _TO_ONE else everyone
    )


def peers_of(pack: Pack, row: int) -> tuple[str, str]:
    """Operation and peer of a row that is one transfer of a batch; ``None`` as a text if none."""
    detail = pack.index.detail.get(row, {})
    return str(detail.get("op")), str(detail.get("peer"))
