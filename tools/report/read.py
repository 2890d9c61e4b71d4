"""Reads results files and judges them: what is wrong becomes a line that names the file and the place, and the rest is
used. __main__.py calls read_files. SPDX-License-Identifier: MIT"""

import json
import math
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

FORMAT = 1  # of the files that carry a number of their format
LEAST, MOST = 1e-30, 1e30  # of a number that something was measured in: beyond, pictures have no axis for it
SHOWN = 3  # rows of one file that are named one by one; the others are counted


@dataclass
class Source:
    """A file that was understood. Lists in `data` hold good rows alone."""

    name: str
    kind: str
    data: dict[str, Any]

    @property
    def machine(self) -> dict[str, Any]:
        return self.data.get("machine") or {}

    @property
    def device(self) -> str:
        """ "gpu" or "cpu": what was measured. A host may name its GPU though its CPU was."""
        said = self.machine.get("device")
        if isinstance(said, str) and said:
            return "gpu" if said.startswith("cuda") else "cpu"
        return "gpu" if self.machine.get("gpu") else "cpu"

    @property
    def machine_name(self) -> str:
        """What was measured, by the name its maker gave it; the file's where it says none."""
        return str(self.machine.get(self.device) or self.machine.get("cpu") or self.name)


@dataclass
class Reading:
    sources: list[Source] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # what was left out, a line each
    remarks: list[str] = field(default_factory=list)  # what is worth saying though nothing was left out

    def of(self, kind: str) -> list[Source]:
        return [source for source in self.sources if source.kind == kind]


# ---- what a field may hold: a check and the words for it ----


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST  # no NaN, no infinity


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < 1 << 63


Check = tuple[Callable[[Any], bool], str]
TEXT: Check = (lambda v: isinstance(v, str), "a text")
WHOLE: Check = (lambda v: _is_whole(v) and v >= 0, "a whole number")
COUNT: Check = (lambda v: _is_whole(v) and v > 0, "a whole number above 0")
POSITIVE: Check = (lambda v: _is_number(v) and v >= LEAST, "a number above 0")
NUMBER: Check = (lambda v: _is_number(v) and v >= 0, "a number from 0 on")
OBJECT: Check = (lambda v: isinstance(v, dict), "an object")
LIST: Check = (lambda v: isinstance(v, list), "a list")
PASS: Check = (lambda v: v in ("forward", "backward", "both"), "forward, backward or both")
EXPLAINED: Check = (lambda v: v in ("forward", "backward", "both", "step"), "forward, backward, both or step")
STATUS: Check = (lambda v: v in ("ok", "wrong", "failed", "timeout", "quoted"), "ok, wrong, failed, timeout or quoted")
TIMES: Check = (lambda v: isinstance(v, dict) and all(POSITIVE[0](t) for t in v.values()), "times above 0 by peer")

TEXTS: Check = (lambda v: isinstance(v, list) and all(isinstance(text, str) for text in v), "a list of texts")
TEXT_BY_NAME: Check = (lambda v: isinstance(v, dict) and all(isinstance(t, str) for t in v.values()), "texts by name")
SIZES: Check = (
    lambda v: isinstance(v, dict) and all(isinstance(size, bool) or WHOLE[0](size) for size in v.values()),
    "whole numbers by name",
)


def shape_of(text: str) -> tuple[int, int] | None:
    """2048x4096 as two numbers."""
    found = re.fullmatch(r"([1-9]\d{0,17})x([1-9]\d{0,17})", text, re.ASCII)
    return (int(found[1]), int(found[2])) if found else None


def _is_quote(figures: Any) -> bool:
    """The time of a copy, and then of each library a time, why there is none, or null."""
    if not isinstance(figures, list) or not figures or not POSITIVE[0](figures[0]):
        return False
    return all(figure is None or isinstance(figure, str) or POSITIVE[0](figure) for figure in figures[1:])


QUOTES: Check = (
    lambda v: isinstance(v, dict) and all(shape_of(key) and _is_quote(figures) for key, figures in v.items()),
    "lists by shape: the time of a copy, then a time, a text or null for each library",
)


def _is_symbol(symbol: Any) -> bool:
    return isinstance(symbol, dict) and all(isinstance(symbol.get(key), str) for key in ("name", "origin"))


SYMBOLS: Check = (
    lambda v: isinstance(v, list) and all(_is_symbol(s) and WHOLE[0](s.get("value")) for s in v),
    "a list of symbols, each with name, value and origin",
)


def _or_null(check: Check) -> Check:
    return lambda v: v is None or check[0](v), f"{check[1]} or null"


# A field that may be missing has a name that ends in "?".
_SHAPE = {"op": TEXT, "dtype": TEXT, "rows": COUNT, "cols": COUNT, "weight_dtype?": _or_null(TEXT)}
_CELL = _SHAPE | {"pass": PASS, "device": TEXT, "host_seconds?": _or_null(POSITIVE)}
_TIMED = _CELL | {"seconds": POSITIVE, "peers?": TIMES, "threads?": WHOLE, "isa?": TEXT}
_ERRORS = dict.fromkeys(("out?", "mean?", "rstd?", "dx?", "dweight?", "dbias?"), _or_null(NUMBER))
_WORK = {"flops": NUMBER, "read_bytes": NUMBER, "write_bytes": NUMBER, "symbols?": _or_null(OBJECT)}
_WORK |= {"intensity?": _or_null(NUMBER), "roofline_seconds?": _or_null(NUMBER)}
_KERNEL = _WORK | {"name": TEXT, "origin?": TEXT}
ROWS: dict[str, dict[str, dict[str, Check]]] = {
    "bench": {
        "results": _TIMED | {"copy_seconds": POSITIVE, "of_copy": POSITIVE},
        "cached?": _TIMED,
    },
    "compare": {
        "backends": {"name": TEXT, "status": TEXT, "version?": _or_null(TEXT), "note?": TEXT},
        "results": _CELL
        | {"backend": TEXT, "status": STATUS, "seconds?": _or_null(POSITIVE)}
        | {"of_copy?": _or_null(NUMBER), "note?": _or_null(TEXT), "model?": _or_null(TEXT), "set?": _or_null(TEXT)}
        | {"weight?": WHOLE, "bias?": WHOLE, "bytes?": WHOLE},
        "accuracy?": _SHAPE | {"backend": TEXT} | _ERRORS,
        "offsets?": {"backend": TEXT, "op": TEXT, "dtype": TEXT, "cols?": COUNT, "offset": NUMBER}
        | {"error": _or_null(NUMBER)},
        "memory?": _SHAPE
        | {"backend": TEXT, "model?": _or_null(TEXT), "peak_bytes": _or_null(WHOLE), "saved_bytes?": _or_null(WHOLE)},
    },
    "machine": {
        "copy": {"bytes": COUNT, "bytes_per_second": POSITIVE, "threads?": WHOLE},
        "flops": {"dtype": TEXT, "flops_per_second": POSITIVE, "threads?": WHOLE},
    },
    "info": {
        "support": {"device": TEXT, "op": TEXT, "pass": TEXT, "dtype": TEXT, "status": TEXT}
        | {"weight_dtype?": _or_null(TEXT)},
    },
    "explain": {"variants": {"name": TEXT, "kernels": LIST, "total": OBJECT, "symbols?": SYMBOLS}},
    "quoted": {
        "tables": {"op": TEXT, "pass": PASS, "dtype": TEXT, "bias": WHOLE, "weight_dtype": TEXT_BY_NAME}
        | {"backends": TEXTS, "microseconds": QUOTES},
    },
}
HEADS: dict[str, dict[str, Check]] = {
    "bench": {"evenkeel": TEXT, "machine": OBJECT},
    "compare": {"evenkeel": _or_null(TEXT), "machine": OBJECT, "format": WHOLE, "date": TEXT},
    "machine": {"evenkeel": TEXT, "machine": OBJECT},
    "info": {"evenkeel": TEXT, "machine?": OBJECT},
    "explain": {"op": TEXT, "pass": EXPLAINED, "sizes": SIZES, "machine?": OBJECT, "dtype?": TEXT, "device?": TEXT}
    | {"order?": TEXT, "corrections?": LIST},
    "quoted": {"date": TEXT, "gpu": TEXT, "method": TEXT},
}


MARKS = {"explain": "variants", "machine": "copy", "info": "support", "quoted": "tables", "bench": "results"}


def kind_of(data: dict[str, Any]) -> str | None:
    """Which program wrote it, from what it holds."""
    if data.get("kind") == "compare":
        return "compare"
    return next((kind for kind, key in MARKS.items() if key in data), None)


def _shown(value: Any) -> str:
    text = "NaN" if isinstance(value, float) and math.isnan(value) else json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _wrong_field(record: Any, checks: dict[str, Check]) -> str | None:
    """The first field that is missing or holds something else, in words."""
    if not isinstance(record, dict):
        return f"is {_shown(record)}, not an object"
    for name, (check, words) in checks.items():
        key = name.rstrip("?")
        if key not in record:
            if not name.endswith("?"):
                return f"lacks {key}"
        elif not check(record[key]):
            return f"has {key} {_shown(record[key])}, which must be {words}"
    return None


def _wrong_variant(variant: dict[str, Any]) -> str | None:
    for kernel in variant["kernels"]:
        if found := _wrong_field(kernel, _KERNEL):
            return f"kernels: one {found}"
    found = _wrong_field(variant["total"], _WORK)
    return f"total: it {found}" if found else None


def _wrong_quotes(table: dict[str, Any]) -> str | None:
    for shape, figures in table["microseconds"].items():
        if len(figures) != 1 + len(table["backends"]):
            return f"has {len(figures)} figures at {shape}: a copy's and {len(table['backends'])} more are needed"
    return None


WRONG_INSIDE = {"explain": _wrong_variant, "quoted": _wrong_quotes}  # what no check of a field alone sees


def _wrong_row(kind: str, row: Any, checks: dict[str, Check]) -> str | None:
    found = _wrong_field(row, checks)
    if found is None and kind == "compare" and row.get("status") in ("ok", "quoted") and "backend" in row:
        found = _wrong_field(row, {"seconds": POSITIVE, "of_copy": POSITIVE})
    return WRONG_INSIDE[kind](row) if found is None and kind in WRONG_INSIDE else found


def _keep_good_rows(source: Source, problems: list[str]) -> None:
    """Leaves rows that cannot be used out of the lists, and says so."""
    for key, checks in ROWS[source.kind].items():
        name, good, bad = key.rstrip("?"), [], []
        for i, row in enumerate(source.data.setdefault(name, [])):
            found = _wrong_row(source.kind, row, checks)
            if found is None:
                good.append(row)
            else:
                bad.append(f"{source.name}: {name}[{i}] {found}: the row is left out")
        source.data[name] = good
        problems += bad[:SHOWN]
        if len(bad) > SHOWN:
            problems.append(f"{source.name}: {len(bad) - SHOWN} more rows of {name} are left out")


def _parse(text: str) -> Any:
    if not text.strip():
        raise ValueError("it is empty")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        cut = "it is cut short" if error.pos >= len(text.rstrip()) - 1 else "it is not JSON"
        raise ValueError(f"{cut} (line {error.lineno}, column {error.colno}: {error.msg})") from None
    except RecursionError:
        raise ValueError("it is nested too deeply to be a results file") from None


def _number(version: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in version.split("."))
    except ValueError:
        raise ValueError(f"evenkeel is {_shown(version)}, which is no version such as 0.1.0") from None


def _judge(name: str, data: Any, version: str) -> Source:
    """The file as a Source; ValueError says what is wrong with all of it."""
    kind = kind_of(data) if isinstance(data, dict) else None
    if kind is None:
        raise ValueError(
            "it is none of the files of evenkeel bench, bench/compare.py, info --measure, info --json (with support), "
            "explain, nor figures to quote"
        )
    checks = (
        {"evenkeel?": _or_null(TEXT), "date?": TEXT, "command?": TEXT} | HEADS[kind] | {key: LIST for key in ROWS[kind]}
    )
    if found := _wrong_field(data, checks):
        raise ValueError(f"it {found}")
    if data.get("format", FORMAT) != FORMAT:
        raise ValueError(f"its format is {_shown(data['format'])}, and this reader knows {FORMAT}: measure it again")
    written_by = data.get("evenkeel") or version  # a comparison may have gone on without evenkeel
    if _number(written_by) > _number(version):
        raise ValueError(f"it is of evenkeel {written_by}, newer than {version}: use the report of that version")
    return Source(name, kind, data)


def read_answer(reading: Reading, name: str, data: Any, version: str) -> None:
    """Adds what the program answered, judged as a file is; an answer that cannot be used is none."""
    try:
        source = _judge(name, data, version)
    except ValueError:
        return
    _keep_good_rows(source, reading.problems)
    reading.sources.append(source)


def read_files(paths: list[pathlib.Path], version: str, root: pathlib.Path) -> Reading:
    """All files that can be used, and a line for all that cannot. `version` is evenkeel's own."""
    reading = Reading()
    for path in paths:
        name = str(path.relative_to(root) if path.is_relative_to(root) else path)
        try:
            source = _judge(name, _parse(path.read_text(encoding="utf-8")), version)
        except OSError as error:
            reading.problems.append(f"{name}: it cannot be read: {error.strerror}: the file is left out")
        except UnicodeDecodeError:
            reading.problems.append(f"{name}: it is not text in UTF-8: the file is left out")
        except ValueError as error:
            reading.problems.append(f"{name}: {error}: the file is left out")
        else:
            _keep_good_rows(source, reading.problems)
            reading.sources.append(source)
            written_by = source.data.get("evenkeel") or version
            if written_by != version:
                reading.remarks.append(f"{name}: measured with evenkeel {written_by}, and this is {version}")
    return reading
