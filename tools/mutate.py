"""Breaks the code on purpose, one small change at a time, in a copy of the tree, and sees whether the tests
notice. The changes are in mutations.py; the result goes to docs/mutation.md. `make mutate` calls it:
    mutate.py            all of them (a change that no test notices is a failure)
    mutate.py --only lane_order,tail
    mutate.py --check    only that each still applies: its old text occurs once
SPDX-License-Identifier: MIT"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from build import ROOT, commands, ctest, jobs
from mutations import MUTATIONS

RESULT = ROOT / "docs" / "mutation.md"
COPIED = ("CMakeLists.txt", "cli", "cmake", "include", "src", "tests", "verify")
# -O1 and two levels: the kernels are compiled again for each mutation, and their bits depend neither on the optimiser nor
# on the level.
LEVELS = "scalar;avx512bf16" if os.uname().machine == "x86_64" else ""
DEFINITIONS = ("-DEVENKEEL_BUILD_CLI=OFF", "-DEVENKEEL_BUILD_EXAMPLES=OFF", "-DEVENKEEL_TEST_MODE=short",
               f"-DEVENKEEL_LEVELS={LEVELS}", "-DCMAKE_C_FLAGS_RELEASE=-O1")
# Most mutations are in the reference, the CPU kernels and what they share: the tests of the CUDA backend need not run. Those
# in CUDA's texts name theirs.
NOT_RUN = "^(cuda_.*|standin_.*|gpu_quick|nvrtc|pack|cache|cost)$"
SECONDS_PER_TEST = 120  # a mutation may hang a test; that is noticed too
SECONDS_ON_STANDIN = 900  # whose kernels are compiled first


def misapplied(mutation, root):
    path = root / mutation.file
    if not path.exists():
        return f"{mutation.name}: {mutation.file} is not there"
    count = path.read_text().count(mutation.old)
    if count != 1:
        return f"{mutation.name}: the old text occurs {count} times in {mutation.file}, not once"
    return ""


def can_run(mutation):
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    flags = set(re.findall(r"\w+", cpuinfo.read_text())) if cpuinfo.exists() else set()
    return not mutation.needs or mutation.needs in flags


class Copy:
    """A copy of the tree that is built and tested; one file of it at a time is changed."""

    def __init__(self, folder):
        self.root, self.build = pathlib.Path(folder) / "tree", pathlib.Path(folder) / "build"
        self.root.mkdir()
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, self.root / name)

    def compile(self):
        for command in commands(self.build, DEFINITIONS, source=self.root):
            result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if result.returncode:
                return result.stdout
        return ""

    def test(self, tests=""):
        """The names of the sentences that failed; of the programs, where one said none."""
        selection = ["-R", tests] if tests else ["-E", NOT_RUN]
        seconds = SECONDS_ON_STANDIN if tests else SECONDS_PER_TEST
        result = subprocess.run([ctest(), "-V", "-j", jobs(), "--timeout", str(seconds),
                                 "--stop-on-failure", *selection], cwd=self.build, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace")
        if result.returncode == 0:
            return []
        sentences = re.findall(r"^\d+: FAILED (\w+)", result.stdout, re.M)
        programs = re.findall(r"Test +#\d+: (\S+) \.*\**(?:Failed|Exception|Timeout|Subprocess)", result.stdout)
        return sentences or [f"{name} (ended badly)" for name in programs] or ["ctest"]

    def try_mutation(self, mutation):
        path = self.root / mutation.file
        original = path.read_text()
        path.write_text(original.replace(mutation.old, mutation.new))
        try:
            trouble = self.compile()
            if trouble:
                print(trouble[-3000:])
                return None
            return self.test(mutation.tests)
        finally:
            path.write_text(original)


def table_cell(text):
    return text.replace("|", "\\|").replace("\n", " ").replace("\t", "")


NOTHING = "**nothing**"


def earlier_rows():
    """The rows of the last result, by the name of the mutation."""
    text = RESULT.read_text() if RESULT.exists() else ""
    return dict(re.findall(r"^(?=\| `(\w+)`)(.*)$", text, re.M))


def write_result(outcomes):
    """These outcomes, and for the mutations that were not tried this time the earlier ones."""
    rows = earlier_rows()
    for mutation, failing in outcomes:
        by = ", ".join(f"`{name}`" for name in failing[:2]) if failing else NOTHING
        rows[mutation.name] = f"| `{mutation.name}` | `{mutation.file}` | {table_cell(mutation.why)} | {by} |"
    rows = [rows[m.name] for m in MUTATIONS if m.name in rows]
    caught = sum(1 for row in rows if NOTHING not in row)
    lines = ["# What the tests notice", "",
             "`make mutate` changes one thing at a time in a copy of the tree and runs the C tests in short; a",
             "change that no test notices is a hole in them. The changes are in `tools/mutations.py`.", "",
             f"**{caught} of {len(rows)} noticed.**", "",
             "| change | where | what it breaks | noticed first by |", "|---|---|---|---|"]
    RESULT.write_text("\n".join(lines + rows) + "\n")


def main():
    parser = argparse.ArgumentParser(description="Breaks the code on purpose and sees the tests notice.")
    parser.add_argument("--only", help="names, with commas; the other rows of the result stay")
    parser.add_argument("--check", action="store_true", help="only see that each mutation applies")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [m.name for m in MUTATIONS]
    chosen = [m for m in MUTATIONS if m.name in names]
    if len(chosen) != len(set(names)):
        parser.error(f"--only: of {', '.join(names)} there are {', '.join(m.name for m in chosen) or 'none'}")
    wrong = [text for text in (misapplied(m, ROOT) for m in chosen) if text]
    if wrong:
        sys.exit("mutate: these no longer apply; bring tools/mutations.py up to date\n  " + "\n  ".join(wrong))
    if options.check:
        print(f"{len(chosen)} mutations apply")
        return
    outcomes, broken = [], []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(folder)
        trouble = copy.compile() or "\n".join(copy.test())
        if trouble:
            sys.exit(f"mutate: the tree itself does not pass\n{trouble[-3000:]}")
        for i, mutation in enumerate(chosen):
            began = time.monotonic()
            print(f"{i + 1:2}/{len(chosen)} {mutation.name} ... ", end="", flush=True)
            if not can_run(mutation):
                print(f"skipped: this CPU has no {mutation.needs}")
                continue
            failing = copy.try_mutation(mutation)
            if failing is None:
                broken.append(mutation.name)
                print("does not compile")
                continue
            outcomes.append((mutation, failing))
            print(f"{'noticed by ' + failing[0] if failing else 'NOT NOTICED'}, {time.monotonic() - began:.0f} s",
                  flush=True)
    write_result(outcomes)
    survivors = sum(1 for _, failing in outcomes if not failing)
    print(f"{len(outcomes) - survivors} passed, {survivors + len(broken)} failed")
    sys.exit(1 if survivors or broken else 0)


if __name__ == "__main__":
    main()
