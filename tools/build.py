"""Configures and builds one folder with CMake: `build.py FOLDER [-DNAME=VALUE ...] [--target NAME ...]`.
The Makefile, test.py, lint.py, coverage.py and mutate.py call it; CMAKE, NINJA and JOBS come from the
Makefile's environment. SPDX-License-Identifier: MIT"""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parent.parent


def jobs():
    return os.environ.get("JOBS") or str(len(os.sched_getaffinity(0)))


def cmake():
    return os.environ.get("CMAKE") or "cmake"


def ctest():
    return os.environ.get("CTEST") or "ctest"


def ninja():
    return os.environ.get("NINJA") or shutil.which("ninja")


def has_python_headers():
    """Can an extension be compiled for this Python? Debian has its headers in a package of their own."""
    return (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists()


def commands(folder, definitions=(), targets=(), source=ROOT):
    """The configure and the build command of a folder."""
    folder = pathlib.Path(folder)
    configure = [cmake(), "-S", str(source), "-B", str(folder), "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    if ninja() and not (folder / "CMakeCache.txt").exists():  # a folder keeps its generator
        configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja()}"]
    configure += list(definitions)
    build = [cmake(), "--build", str(folder), "-j", jobs()]
    if targets:
        build += ["--target", *targets]
    return [configure, build]


def build(folder, definitions=(), targets=(), source=ROOT):
    """Builds with little to read: what CMake says of the configuration only if it fails."""
    configure, make = commands(folder, definitions, targets, source)
    result = subprocess.run(configure, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        sys.stdout.write(result.stdout)
        return result.returncode
    return subprocess.run(make).returncode


def main():
    arguments = sys.argv[1:]
    targets = []
    if "--target" in arguments:
        at = arguments.index("--target")
        arguments, targets = arguments[:at], arguments[at + 1:]
    if not arguments:
        sys.exit(__doc__)
    sys.exit(build(ROOT / arguments[0], arguments[1:], targets))


if __name__ == "__main__":
    main()
