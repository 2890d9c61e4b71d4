"""Builds with gcov's counters, runs the C tests in short, and says how much of src/ they reach; pages per
file go to build-coverage/html/. `make coverage` calls it. SPDX-License-Identifier: MIT"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from build import ROOT, build, ctest, jobs

FOLDER = ROOT / "build-coverage"
GCOVR = ROOT / ".venv" / "bin" / "gcovr"

# A scalar build of -O0 is what the counters understand best; the mode can be made longer from outside.
DEFINITIONS = ("-DCMAKE_BUILD_TYPE=Debug", "-DEVENKEEL_COVERAGE=ON", "-DEVENKEEL_BUILD_EXAMPLES=OFF",
               f"-DEVENKEEL_TEST_MODE={os.environ.get('TEST_MODE', 'short')}")


def gcov_program():
    """clang writes the counters in a form that llvm-cov alone reads."""
    compiler = os.environ.get("CC") or "cc"
    version = subprocess.run([compiler, "--version"], stdout=subprocess.PIPE, text=True).stdout
    return "llvm-cov gcov" if "clang" in version else "gcov"


def main():
    if not GCOVR.exists():
        sys.exit("coverage: gcovr is not there: run make coverage, which installs it")
    if build(FOLDER, DEFINITIONS):
        sys.exit("coverage: the build failed")
    for counters in FOLDER.rglob("*.gcda"):
        counters.unlink()
    if subprocess.run([ctest(), "--output-on-failure", "-j", jobs()], cwd=FOLDER).returncode:
        sys.exit("coverage: the tests fail")
    html = FOLDER / "html"
    shutil.rmtree(html, ignore_errors=True)
    html.mkdir()
    summary = FOLDER / "summary.json"
    # Lines of a template are counted once however many levels include it: reached by any is reached.
    subprocess.run([GCOVR, "-r", ROOT, "--object-directory", FOLDER, "--filter", "src/", "--gcov-executable",
                    gcov_program(), "--merge-mode-functions", "merge-use-line-0", "--gcov-ignore-parse-errors",
                    "--exclude-unreachable-branches", "--exclude-throw-branches", "--json-summary", summary,
                    "--html-details", html / "index.html", "--txt", "-"], cwd=ROOT, check=True)
    total = json.loads(summary.read_text())
    print(f"pages: {pathlib.Path(html / 'index.html').relative_to(ROOT)}")
    print(f"src/: {total['line_percent']} % of {total['line_total']} lines, "
          f"{total['branch_percent']} % of {total['branch_total']} branches")


if __name__ == "__main__":
    main()
