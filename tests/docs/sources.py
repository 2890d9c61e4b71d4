"""What the sources hold, for the checks of the guides: functions, and the texts of messages with `…` for each value.

C is cut into tokens here, Python is read by ast; nothing is compiled or imported. SPDX-License-Identifier: MIT
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

# Calls that make a message, and with them whoever sees it.
MAKERS = {
    "src": ("ek_fail", "REQUIRE", "ek_gpu_fail", "fail_on_stream", "fail", "say", "refuse"),
    "cli": ("complain", "ek_fail", "ek_gpu_fail", "fail"),
    "verify": ("ek_fail", "ek_gpu_fail"),
    "python/core": ("PyErr_Format", "PyErr_SetString"),
}


class Message(NamedTuple):
    """A text that a call makes: `x_stride (…) is smaller than cols (…)`."""

    text: str
    path: Path
    line: int
    status: str | None  # EK_ERROR_…, where the call says so

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


class Token(NamedTuple):
    kind: str  # string, name, other
    value: str
    line: int


# ---- C ----

_TOKEN = re.compile(
    r"""(?P<space>\s+|\\\n|//[^\n]*|/\*.*?\*/)
      |(?P<string>"(?:\\.|[^"\\])*")
      |(?P<char>'(?:\\.|[^'\\])*')
      |(?P<name>\#?[A-Za-z_]\w*)
      |(?P<other>.)""",
    re.S | re.X,
)
_CONVERSION = re.compile(r"%[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|z|j|t)?[A-Za-z]")
_ESCAPES = {'"': '"', "n": "\n", "t": "\t", "r": "\r", "\\": "\\", "0": "\0"}


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text)


def _cut(text: str) -> Iterator[Token]:
    line = 1
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or "other"
        if kind == "string":
            yield Token("string", _unescaped(found[0][1:-1]), line)
        elif kind == "name":
            yield Token("name", found[0], line)
        elif kind != "space":
            yield Token("other", found[0], line)
        line += found[0].count("\n")


def _piece(token: Token) -> str | None:
    """What a token adds to a string beside it: its text, the letters of PRId64, the name that #name becomes."""
    if token.kind == "string":
        return token.value
    if token.kind == "name" and token.value.startswith("PRI"):
        return "d"
    return "%s" if token.value.startswith("#") else None


def _joined(tokens: list[Token]) -> Iterator[Token]:
    """Strings that follow one another as one."""
    i = 0
    while i < len(tokens):
        token = tokens[i]
        i += 1
        if token.kind == "string":
            text = token.value
            while i < len(tokens) and (piece := _piece(tokens[i])) is not None:
                text += piece
                i += 1
            token = Token("string", text, token.line)
        yield token


@cache
def c_tokens(path: Path) -> list[Token]:
    return list(_joined(list(_cut(path.read_text()))))


def with_gaps(text: str) -> str:
    """A format as it is searched for: `…` for each value, one where several meet, one line."""
    text = _CONVERSION.sub("…", text.replace("%%", "\0")).replace("\0", "%")
    return re.sub(r"\s+", " ", re.sub(r"…+", "…", text)).strip()


def _call(tokens: list[Token], start: int) -> list[Token]:
    """The tokens of the parentheses that open at start."""
    depth = 0
    for i in range(start, len(tokens)):
        if tokens[i].kind == "other":
            depth += (tokens[i].value == "(") - (tokens[i].value == ")")
            if depth == 0:
                return tokens[start:i]
    return tokens[start:]


def _message(path: Path, call: list[Token]) -> Message | None:
    """The first text of a call itself, not of one inside it, and the status named before it."""
    depth, first = 0, None
    for i, token in enumerate(call):
        if token.kind == "string" and depth == 1:
            first = i
            break
        if token.kind == "other":
            depth += (token.value == "(") - (token.value == ")")
    if first is None:
        return None
    status = [token.value for token in call[:first] if token.value.startswith("EK_ERROR_")]
    one = status[0] if len(status) == 1 else None  # two stand where a condition chooses
    return Message(with_gaps(call[first].value), path, call[first].line, one)


def c_messages(path: Path, makers: tuple[str, ...]) -> Iterator[Message]:
    tokens = c_tokens(path)
    for i, token in enumerate(tokens[:-1]):
        if token.kind == "name" and token.value in makers and tokens[i + 1].value == "(":
            message = _message(path, _call(tokens, i + 1))
            if message and re.search(r"\w\w", message.text.replace("…", "")):
                yield message


# ---- Python ----


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return with_gaps(node.value.replace("%", "%%"))
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        return with_gaps("".join(map(str, parts)).replace("%", "%%"))
    return None


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def python_messages(path: Path) -> Iterator[Message]:
    """What exceptions are made with."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("Error"):
            text = _text(node.args[0]) if node.args else None
            if text and re.search(r"\w\w", text.replace("…", "")):
                yield Message(text, path, node.lineno, None)


# ---- all of them ----


def sources(folder: str, *endings: str) -> list[Path]:
    return sorted(path for ending in endings for path in (ROOT / folder).rglob(f"*{ending}"))


def messages() -> list[Message]:
    """What the library, the program and the package say where they refuse something."""
    found = [m for folder, makers in MAKERS.items() for p in sources(folder, ".c") for m in c_messages(p, makers)]
    return found + [m for path in sources("python/evenkeel", ".py") for m in python_messages(path)]


@cache
def texts() -> list[str]:
    """Every string of the sources."""
    found = [
        with_gaps(token.value)
        for folder in MAKERS
        for path in sources(folder, ".c", ".h")
        for token in c_tokens(path)
        if token.kind == "string"
    ]
    for path in sources("python/evenkeel", ".py"):
        found += [text for node in ast.walk(_tree(path)) if (text := _text(node))]
    return found


def statuses() -> list[str]:
    """Those of the header, in its order."""
    header = (ROOT / "include/evenkeel.h").read_text()
    enumeration = re.search(r"typedef enum ek_status \{(.*?)\}", header, re.S)
    assert enumeration, "include/evenkeel.h has no ek_status"
    return re.findall(r"^\s*(EK_\w+) =", enumeration[1], re.M)


def defines(path: Path, name: str) -> bool:
    """Whether a function of that name, or a class's method as Class.method, is defined in the file."""
    if path.suffix == ".py":
        *classes, last = name.split(".")
        scope: list[ast.stmt] = _tree(path).body
        for part in classes:
            scope = next((n.body for n in scope if isinstance(n, ast.ClassDef) and n.name == part), [])
        return any(isinstance(node, ast.FunctionDef) and node.name == last for node in scope)
    plain = rf"^(?:[A-Za-z_][\w \t*]*[\s*])?{name}\("
    by_macro = rf"^[\w \t*]+\bN\({name}\)\(|^FUNCTION\({name},"
    return re.search(rf"{plain}|{by_macro}", path.read_text(), re.M) is not None
