"""Runs the tests in stages, says what each found and how long it took, shows the log of one that failed,
and ends with `N passed, N failed, N skipped`. `make test` calls it. SPDX-License-Identifier: MIT"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from build import ROOT, commands, ctest, has_python_headers, jobs

LOGS = ROOT / "build" / "logs"
STARTED = time.monotonic()
QUICK_TO_COMPILE = "-DCMAKE_C_FLAGS_RELEASE=-O1 -g1"  # the kernels take a minute each under a sanitizer at -O3
# rules compares two scalar writings of the contract, cuda_compile calls NVRTC: slow, and nothing to watch
NOT_WATCHED = ["-E", "^(rules|cuda_compile)$"]
# qemu-user cannot fork a program that has threads, and keeps books on every page of a huge mapping; of the
# bits, what takes it over half a minute is left to the golden digests, which have such shapes. The tests of the
# CUDA backend call the compiler of the build, which is not an emulated one.
UNDER_QEMU = ("accuracy", "arguments", "context", "golden", "gradients", "guard", "sample", "unload")
BITS_UNDER_QEMU = ("all_widths_to_2100", "large_widths", "row_counts_to_70", "bits_do_not_depend_on_base_offsets",
                   "bits_do_not_depend_on_strides", "every_operand_form", "shapes_that_users_bring",
                   "special_values", "a_row_does_not_depend_on_the_rows_around_it",
                   "constant_rows_and_signs_of_zero")
SANITIZERS = {
    "asan": ("address,undefined", {"ASAN_OPTIONS": "strict_string_checks=1:detect_stack_use_after_return=1",
                                   "UBSAN_OPTIONS": "print_stacktrace=1"}),
    "tsan": ("thread", {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}),
}


class Stage:
    """What a stage counted, and the file its output goes to."""

    def __init__(self, name):
        LOGS.mkdir(parents=True, exist_ok=True)
        self.name, self.path = name, LOGS / f"{name}.log"
        self.log = open(self.path, "w")
        self.passed, self.failed, self.skipped, self.why = 0, 0, 0, ""

    def skip(self, why):
        self.skipped, self.why = self.skipped + 1, why

    def run(self, command, env=None, cwd=ROOT):
        """Runs a command into the log; returns its exit status and what it printed."""
        result = subprocess.run(list(map(str, command)), cwd=cwd, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace",
                                env={**os.environ, **(env or {})})
        print("$", " ".join(map(str, command)) + "\n" + result.stdout, file=self.log, flush=True)
        return result.returncode, result.stdout

    def build(self, folder, *definitions, targets=()):
        werror = "ON" if os.environ.get("CI") else "OFF"
        definitions = (f"-DEVENKEEL_WERROR={werror}", *definitions)
        for command in commands(ROOT / folder, definitions, targets):
            if self.run(command)[0]:
                self.failed += 1
                self.why = "the build failed"
                return False
        return True

    def ctest(self, folder, *selection, env=None):
        """The tests of a folder, counted by the sentence; a program that ends badly without one counts
        as a failure of its own."""
        status, text = self.run([ctest(), "-V", "-j", jobs(), *selection], env, ROOT / folder)
        outcomes = re.findall(r"^\s*(\d+)/\d+ Test +#(\d+): (\S+) \.*\**\s*(\S+)", text, re.M)
        for _, number, name, outcome in outcomes:
            lines = re.findall(rf"^{number}: (ok|FAILED|skipped) \S", text, re.M)
            self.passed += lines.count("ok")
            self.failed += lines.count("FAILED")
            self.skipped += lines.count("skipped")
            if outcome == "Passed" and not lines:
                self.passed += 1
            if outcome != "Passed" and "FAILED" not in lines:
                self.failed += 1
            if outcome != "Passed":
                self.why += f"{name} {outcome.lower()}; "
        if not outcomes or (status and not self.failed):
            self.failed += 1
            self.why = self.why or "ctest ran nothing"

    def checks(self, command, env=None):
        """A script that prints `ok NAME`, `FAIL[ED] NAME` or `skipped NAME: why`, a line for each check."""
        status, text = self.run(command, env)
        outcomes = re.findall(r"^(ok|FAILED|FAIL|skipped) +(.+)$", text, re.M)
        for outcome, name in outcomes:
            self.passed += outcome == "ok"
            self.failed += outcome.startswith("FAIL")
            self.skipped += outcome == "skipped"
            if outcome != "ok":
                self.why += f"{outcome} {name}; "
        if not outcomes or (status and not self.failed):
            self.failed += 1
            self.why += f"{' '.join(map(str, command[-2:]))} ended with status {status}"

    def pytest(self, python, *arguments):
        """Tests of Python, counted by pytest."""
        status, text = self.run([python, "-m", "pytest", "-q", *arguments])
        counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b",
                                                                   text.strip().rpartition("\n")[2])}
        self.passed += counts.get("passed", 0)
        self.failed += counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
        self.skipped += counts.get("skipped", 0)
        if not counts or (status and not self.failed):
            self.failed += 1
            self.why = f"pytest ended with status {status}"


def links(compiler, *flags):
    """Can the compiler make a program with these flags? (A sanitizer's runtime may be missing.)"""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "probe.c"
        source.write_text("int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n);\n"
                          "int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n)\n"
                          "{ return d && n == 1234567; }\n"
                          + ("" if "fuzzer" in "".join(flags) else "int main(void) { return 0; }\n"))
        return subprocess.run([compiler, *flags, str(source), "-o", f"{folder}/probe"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def has(stage, tool, package):
    if shutil.which(tool):
        return True
    stage.skip(f"{tool} is not there: install {package}")
    return False


def stage_c(stage, options):
    """the C tests"""
    mode = "long" if options.slow else ""
    selection = ["-R", f"^{options.only}$"] if options.only else []
    if stage.build("build", f"-DEVENKEEL_TEST_MODE={mode}"):
        stage.ctest("build", *selection)


def stage_cli(stage, options):
    """the program's output and exit statuses, and what of it is in docs/cost.md"""
    stage.checks([sys.executable, "tests/cli/run.py", "build/evenkeel"])
    stage.checks([sys.executable, "tools/cost_tables.py", "build/evenkeel"])


def stage_docs(stage, options):
    """the guides: what they name and quote is in the sources, and every message is in them"""
    stage.checks([sys.executable, "tests/docs/run.py"])


def stage_scripts(stage, options):
    """the script that reads what Nsight Compute counts"""
    stage.checks([sys.executable, "tests/dram/test.py"])


def stage_consumers(stage, options):
    """an installation, and outside programs that use it"""
    stage.checks([sys.executable, "tests/consumers/run.py", "build"])


def stage_python(stage, options):
    """the Python package: installed in .venv, pytest"""
    python = ROOT / ".venv" / "bin" / "python"
    if not python.exists() or stage.run([python, "-c", "import numpy, pytest, scikit_build_core, torch"])[0]:
        stage.skip("PyTorch and pytest are not in .venv: make test installs them")
        return
    if not has_python_headers():
        stage.skip("Python.h is not there: install python3-dev")
        return
    if not stage.build("build", targets=["evenkeel_static", "standin_cuda", "standin_nvrtc"]):
        return
    werror = "ON" if os.environ.get("CI") else "OFF"
    if stage.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-build-isolation",
                  "--no-deps", "-C", f"cmake.define.EVENKEEL_WERROR={werror}",
                  "-C", f"cmake.define.EVENKEEL_PYTHON_LIBRARY={ROOT / 'build' / 'libevenkeel.a'}", "-e", "."])[0]:
        stage.failed += 1
        stage.why = "pip install -e . failed"
        return
    stage.pytest(python, "tests/python")


def stage_report(stage, options):
    """the page of make report: its form, bad input; in the long form also in Chromium"""
    python = ROOT / ".venv" / "bin" / "python"
    if not python.exists() or stage.run([python, "-c", "import matplotlib, pytest"])[0]:
        stage.skip("matplotlib and pytest are not in .venv: make test installs them")
        return
    browser = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")))
    if options.slow and not browser:
        stage.skip("the page is not tried in a browser: install chromium")
    stage.pytest(python, "tests/report", *([] if options.slow and browser else ["--ignore=tests/report/test_browser.py"]))


def sanitizer(stage, selection):
    sanitize, env = SANITIZERS[stage.name]
    if not links(os.environ.get("CC") or "cc", f"-fsanitize={sanitize}"):
        stage.skip(f"the compiler cannot link -fsanitize={sanitize}: install its sanitizer runtime")
        return
    if stage.build(f"build-{stage.name}", f"-DEVENKEEL_SANITIZE={sanitize}", "-DEVENKEEL_TEST_MODE=short",
                   "-DEVENKEEL_BUILD_EXAMPLES=OFF", QUICK_TO_COMPILE):
        stage.ctest(f"build-{stage.name}", *selection, env=env)


def stage_asan(stage, options):
    """the C tests in short under AddressSanitizer and UndefinedBehaviorSanitizer"""
    sanitizer(stage, NOT_WATCHED)


def stage_tsan(stage, options):
    """the tests of threads under ThreadSanitizer"""
    sanitizer(stage, ["-R", "^threads$"])


def stage_clang(stage, options):
    """the C tests in short, built by clang"""
    if has(stage, "clang", "clang") and stage.build(
            "build-clang", "-DCMAKE_C_COMPILER=clang", "-DEVENKEEL_TEST_MODE=short"):
        stage.ctest("build-clang", "-E", "^cuda_compile$")


def stage_neon(stage, options):
    """C tests in short for 64-bit Arm, under qemu"""
    if os.uname().machine == "aarch64":
        stage.skip("this machine is 64-bit Arm: stage c has run them")
        return
    if (has(stage, "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu and libc6-dev-arm64-cross")
            and has(stage, "qemu-aarch64", "qemu-user")
            and stage.build("build-neon", "-DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake",
                            "-DEVENKEEL_TEST_MODE=short", "-DEVENKEEL_BUILD_EXAMPLES=OFF")):
        stage.ctest("build-neon", "-R", f"^({'|'.join(UNDER_QEMU)})$")
        emulated = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "build-neon/tests/test_bits", "short"]
        with concurrent.futures.ThreadPoolExecutor(int(jobs())) as pool:
            list(pool.map(lambda name: stage.checks([*emulated, name]), BITS_UNDER_QEMU))


def stage_fuzz(stage, options):
    """libFuzzer over the argument structs"""
    if not has(stage, "clang", "clang"):
        return
    if not links("clang", "-fsanitize=fuzzer,address,undefined"):
        stage.skip("clang has no libFuzzer: install libclang-rt-dev of clang's version")
        return
    if not stage.build("build-fuzz", "-DCMAKE_C_COMPILER=clang", "-DEVENKEEL_BUILD_FUZZ=ON",
                       "-DEVENKEEL_SANITIZE=address,undefined", "-DEVENKEEL_BUILD_TESTS=OFF",
                       "-DEVENKEEL_BUILD_CLI=OFF", "-DEVENKEEL_BUILD_EXAMPLES=OFF", QUICK_TO_COMPILE,
                       targets=["fuzz_norm"]):
        return
    corpus = ROOT / "build-fuzz" / "corpus"
    corpus.mkdir(exist_ok=True)
    status, text = stage.run(["build-fuzz/fuzz/fuzz_norm", corpus, f"-max_total_time={options.fuzz_seconds}",
                              "-max_len=256", "-len_control=0", "-print_final_stats=1", f"-seed={options.seed}",
                              "-artifact_prefix=build-fuzz/"])
    calls = re.search(r"fuzz_norm: (\d+ calls, \d+ of them accepted)", text)
    stage.passed, stage.failed = int(status == 0), int(status != 0)
    stage.why = calls.group(1) if calls and not status else "the input is in build-fuzz/"


STAGES = {name[len("stage_"):]: function for name, function in list(globals().items())
          if name.startswith("stage_")}


def finish(stage, seconds):
    stage.log.close()
    text = f"{stage.passed} passed, {stage.failed} failed"
    if stage.skipped:
        text += f", {stage.skipped} skipped"
    if stage.why:
        text += f" ({stage.why.rstrip('; ')})"
    print(f"{text}, {seconds:.0f} s", flush=True)
    if stage.failed:
        lines = stage.path.read_text().splitlines()
        telling = [i for i, line in enumerate(lines) if re.search(r"FAIL|error:|ERROR:|Error\b|fuzz_norm:", line)]
        first = max(0, telling[0] - 5) if telling else 0
        for line in lines[first:first + 60] + (["..."] + lines[-25:] if len(lines) > first + 85 else []):
            print(f"    | {line}")
        print(f"    the whole log: {stage.path.relative_to(ROOT)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", default=",".join(STAGES), help="of " + ", ".join(STAGES))
    parser.add_argument("--only", help="one C test, by its ctest name")
    parser.add_argument("--slow", action="store_true", help="the C tests and those of the report in their long form")
    parser.add_argument("--fuzz-seconds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    unknown = [name for name in options.stages.split(",") if name not in STAGES]
    if unknown:
        parser.error(f"--stages: {unknown[0]} is none of {', '.join(STAGES)}")
    total = [0, 0, 0]
    for name in options.stages.split(","):
        print(f"[{time.monotonic() - STARTED:4.0f} s] {name}: {STAGES[name].__doc__} ... ", end="", flush=True)
        stage, began = Stage(name), time.monotonic()
        STAGES[name](stage, options)
        finish(stage, time.monotonic() - began)
        for i, count in enumerate((stage.passed, stage.failed, stage.skipped)):
            total[i] += count
    print(f"[{time.monotonic() - STARTED:4.0f} s] done")
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    sys.exit(1 if total[1] or not total[0] else 0)


if __name__ == "__main__":
    main()
