"""How many times evenkeel's speed is another library's: the one definition, for headlines.py, plots.py, documents.py.
It is the ratio of their shares of a copy, each timed beside that copy, both in one run where a run has both, so that
what the machine did meanwhile cancels. SPDX-License-Identifier: MIT"""

from collections import Counter
from dataclasses import dataclass

from . import theme
from .rows import Row


@dataclass(frozen=True)
class Pair:
    """Ours and another library's at one cell: of one run, unless the other is quoted."""

    ours: Row
    peer: Row

    @property
    def times(self) -> float:
        return self.ours.of_copy / self.peer.of_copy

    @property
    def quoted(self) -> bool:
        return self.peer.status == "quoted"


@dataclass(frozen=True)
class Duel:
    """Ours and all others at one cell."""

    pairs: tuple[Pair, ...]

    @property
    def ours(self) -> Row:
        return self.pairs[0].ours

    @property
    def best(self) -> Pair:
        """Against whichever library is the fastest."""
        return min(self.pairs, key=lambda pair: pair.times)

    @property
    def torch(self) -> Pair | None:
        return next((pair for pair in self.pairs if theme.label(pair.peer.backend) == "PyTorch"), None)


def _runs(rows: list[Row]) -> dict[str, bool]:
    """The files that hold ours, and whether `evenkeel bench` wrote them: such first, whose copy is the fastest, then
    the larger."""
    sizes = Counter(row.source for row in rows)
    benches = {row.source for row in rows if row.isa}  # the level is what evenkeel's own program knows
    files = {row.source for row in rows if row.backend == "evenkeel"}
    return {name: name in benches for name in sorted(files, key=lambda name: (name not in benches, -sizes[name], name))}


def _duel(cell: list[Row], runs: dict[str, bool]) -> Duel | None:
    """With each library the pair of the first run that has both. What is quoted was held against PyTorch's copy, as
    comparisons are, and is paired with ours of a comparison where there is one."""
    ours = {row.source: row for row in cell if row.backend == "evenkeel"}
    known = [run for run in runs if run in ours]
    pairs: dict[str, Pair] = {}
    for run in known:
        for row in cell:
            if row.source == run and row.status == "ok" and not theme.is_ours(row.backend):
                pairs.setdefault(theme.label(row.backend), Pair(ours[run], row))
    for run in sorted(known, key=runs.__getitem__)[:1]:
        for row in cell:
            if row.status == "quoted":
                pairs.setdefault(theme.label(row.backend), Pair(ours[run], row))
    return Duel(tuple(pairs.values())) if pairs else None


def duels(rows: list[Row]) -> list[Duel]:
    """The cells of a panel where ours has at least one peer, in the order of their bytes."""
    runs = _runs(rows)
    cells: dict[tuple, list[Row]] = {}
    for row in rows:
        cells.setdefault(row.cell, []).append(row)
    found = [duel for cell in cells.values() if (duel := _duel(cell, runs))]
    return sorted(found, key=lambda duel: (duel.ours.bytes, duel.ours.cols))
