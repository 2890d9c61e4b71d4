"""The linters, one after another, each on the files that it understands: clang-format, clang-tidy, cppcheck, ruff,
mypy, the scripts' syntax. Ends with `N passed, N failed`. `make lint` calls it; --fix reformats instead.
SPDX-License-Identifier: MIT"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

from build import ROOT, build, has_python_headers, jobs
from mutate import misapplied
from mutations import MUTATIONS

BUILD = ROOT / "build"
FOLDERS = ("include", "src", "verify", "cli", "python", "tests", "examples")
PYTHON_FOLDERS = ("tools", "python", "tests", "examples", "bench")
RUFF_FOLDERS = ("python", "tests/python", "tests/docs", "tests/dram", "tests/report", "tools/report", "examples", "bench")

# Not for clang-format: vocabularies and templates whose lines are laid out as tables, or whose macros it
# takes for expressions.
UNFORMATTED = ("src/cpu/simd*.h", "src/**/*.inc.h", "tests/*.inc.h")


def sources(*endings):
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in endings]
    return sorted(path.relative_to(ROOT) for path in files if not path.name.startswith("."))


def formatted():
    unformatted = {path.relative_to(ROOT) for pattern in UNFORMATTED for path in ROOT.glob(pattern)}
    return [path for path in sources(".c", ".h", ".cc") if path not in unformatted]


def run(command):
    result = subprocess.run([str(part) for part in command], cwd=ROOT, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, errors="replace")
    return result.returncode, result.stdout


# ---- each linter returns what it found, by file; "" is nothing ----

def clang_format(options):
    found = {}
    for path in formatted():
        status, text = run(["clang-format", "-i" if options.fix else "--dry-run", "--Werror", "--style=file", path])
        if status:
            lines = re.findall(r"^[^:\s]+:(\d+):", text, re.M)
            found[path] = f"{path}: lines {', '.join(dict.fromkeys(lines))} (make format)"
        else:
            found[path] = ""
    return found


def clang_tidy(options):
    known = {entry["file"] for entry in json.loads((BUILD / "compile_commands.json").read_text())}
    files = [path for path in sources(".c") if str(ROOT / path) in known]

    def tidy(path):
        status, text = run(["clang-tidy", "-p", BUILD, "--quiet", path])
        text = re.sub(r"^\d+ warnings? .*$\n?|^Suppressed .*$\n?|^Use -header-filter.*$\n?", "", text, flags=re.M)
        return path, text.strip() if status else ""

    with concurrent.futures.ThreadPoolExecutor(int(jobs())) as pool:
        return dict(pool.map(tidy, files))


def cppcheck(options):
    cache = BUILD / "cppcheck"
    cache.mkdir(parents=True, exist_ok=True)
    files = [path for path in sources(".c") if path.parts[:2] != ("tests", "consumers")]
    suppressions = [line for line in (ROOT / "tools/cppcheck-suppressions.txt").read_text().splitlines()
                    if line and not line.startswith("#")]
    status, text = run(["cppcheck", "--std=c11", "--enable=warning,portability,performance", "--inline-suppr",
                        "--error-exitcode=1", "--quiet", f"--cppcheck-build-dir={cache}", "-j", jobs(), "-Iinclude",
                        "-Isrc", "-D__x86_64__=1", "-D__linux__=1", "-D__GNUC__=12",
                        *[f"--suppress={line}" for line in suppressions], *files])
    return {"all sources": text.strip() if status else ""}


def python_syntax(options):
    found = {}
    for path in sorted(p for folder in PYTHON_FOLDERS for p in (ROOT / folder).rglob("*.py")):
        try:
            compile(path.read_text(), str(path), "exec")
            found[path] = ""
        except SyntaxError as error:
            found[path] = f"{path.relative_to(ROOT)}:{error.lineno}: {error.msg}"
    return found


def venv_tool(name):
    """A linter from .venv, where make lint puts it, else the system's."""
    path = ROOT / ".venv" / "bin" / name
    return path if path.exists() else name


def ruff(options):
    command = [venv_tool("ruff")]
    found = {}
    for arguments in (["format", "--diff"], ["check"]):
        status, text = run([*command, *arguments, *RUFF_FOLDERS])
        found[arguments[0]] = text.strip() if status else ""
    return found


def mypy(options):
    status, text = run([venv_tool("mypy")])
    return {"the package": text.strip() if status else ""}


def shell_syntax(options):
    return {path: run(["bash", "-n", path])[1] for path in [ROOT / ".ci/run", *ROOT.glob("tests/**/*.sh")]}


def text_files(options):
    """No trailing blanks, no line without its end, no carriage return."""
    found = {}
    files = [ROOT / name for name in ("Makefile", "CMakeLists.txt", ".ci/run", *map(str, sources(".c", ".h", ".cc")))]
    for path in files + sorted(p for folder in PYTHON_FOLDERS for p in (ROOT / folder).rglob("*.py")):
        lines = path.read_bytes().split(b"\n")
        bad = [i + 1 for i, line in enumerate(lines) if line != line.rstrip()]
        if lines[-1]:
            bad.append(len(lines))
        found[path] = f"{path.relative_to(ROOT)}: blanks at the end of lines {bad}" if bad else ""
    return found


def mutations(options):
    """Each mutation of tools/mutations.py still applies to the text that it changes."""
    return {mutation.name: misapplied(mutation, ROOT) for mutation in MUTATIONS}


LINTERS = (("clang-format", clang_format), ("clang-tidy", clang_tidy), ("cppcheck", cppcheck),
           ("python3", python_syntax), ("ruff", ruff), ("mypy", mypy), ("bash", shell_syntax), (None, text_files),
           (None, mutations))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fix", action="store_true", help="reformat with clang-format, and no more")
    parser.add_argument("--only", help="one of " + ", ".join(function.__name__ for _, function in LINTERS))
    options = parser.parse_args()
    if options.fix:
        options.only = "clang_format"
    python = f"-DEVENKEEL_BUILD_PYTHON={'ON' if has_python_headers() else 'OFF'}"
    if not options.fix and options.only in (None, "clang_tidy") and build(BUILD, [python]):
        sys.exit("lint: the build failed, and clang-tidy needs its list of commands")
    passed = failed = 0
    for tool, function in LINTERS:
        if options.only and function.__name__ != options.only:
            continue
        began = time.monotonic()
        name = function.__name__.replace("_", "-" if tool and "-" in tool else " ")
        if tool and not shutil.which(str(venv_tool(tool))):
            print(f"{name}: FAILED, {tool} is not there: install {tool}")
            failed += 1
            continue
        found = function(options)
        wrong = [text for text in found.values() if text]
        passed, failed = passed + len(found) - len(wrong), failed + len(wrong)
        print(f"{name}: {len(found) - len(wrong)} passed, {len(wrong)} failed, {time.monotonic() - began:.0f} s",
              flush=True)
        for text in wrong:
            print(text, flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
