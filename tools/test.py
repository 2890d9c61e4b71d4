"""Runs the tests in stages: shows how far each is and what is left, the counts and the time of each, the log of one
that failed, and ends with `N passed, N failed, N skipped`. `make test` calls it; `--rest` is what `make test-all`
adds, `--slow` the long form. SPDX-License-Identifier: MIT"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import typing

from build import ROOT, has_python_headers, jobs
from stage import IN_CI, LOGS, Display, Stage, minutes

PYTHON = ROOT / ".venv" / "bin" / "python"
FAST_TO_COMPILE = "-DCMAKE_C_FLAGS_RELEASE=-Og -g1"  # under a sanitizer: 27 s a kernel source, -O0 38, -O1 34
SANITIZED_LEVELS = "scalar;avx2" if os.uname().machine == "x86_64" else ""  # AVX-512's masked accesses are not seen
# rules compares two scalar implementations of the contract, cuda_compile calls NVRTC, cuda_bytes counts what the kernels
# of cuda_bits move: slow, with no memory of ours that other tests do not touch
NOT_SANITIZED = ("rules", "cuda_compile", "cuda_bytes")
# The programs that hand the library bad arguments, guard pages, damaged files and failing allocations.
SANITIZED_IN_SHORT = ("arguments", "cache", "context", "cuda_errors", "guard", "memory", "overlaps", "pack", "table",
                      "threads")
# qemu-user cannot fork a program that has threads, and is slow on huge mappings; of the bits, sentences that take it
# over half a minute are left to the golden digests, which have such shapes. The tests of the CUDA backend call the
# compiler of the build, which is not an emulated one.
UNDER_QEMU = ("accuracy", "arguments", "context", "golden", "gradients", "guard", "math", "overlaps", "sample",
              "unload")
BITS_UNDER_QEMU = ("all_widths_to_2100", "large_widths", "row_counts_to_70", "bits_do_not_depend_on_base_offsets",
                   "bits_do_not_depend_on_strides", "every_operand_form", "shapes_that_users_bring",
                   "special_values", "a_row_does_not_depend_on_the_rows_around_it",
                   "constant_rows_and_signs_of_zero")
SANITIZERS = {
    "address,undefined": {"ASAN_OPTIONS": "strict_string_checks=1:detect_stack_use_after_return=1",
                          "UBSAN_OPTIONS": "print_stacktrace=1"},
    "thread": {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"},
}


# ---- what a stage needs ----

def links(compiler, *flags):
    """Whether the compiler can make a program with these flags: a sanitizer's runtime may be missing."""
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
    stage.skip(f"{tool} not found; install {package}")
    return False


def has_modules(stage, *modules):
    if PYTHON.exists() and stage.run([PYTHON, "-c", f"import {', '.join(modules)}"])[0] == 0:
        return True
    stage.skip(f"{', '.join(modules)} not found in .venv; make test installs them")
    return False


# ---- the stages; the docstring is what a user reads ----

def build(stage, options):
    """compile the libraries, the program, the examples and the tests"""
    if stage.build("build", f"-DEVENKEEL_TEST_MODE={options.mode}"):
        stage.passed += 1


def c(stage, options):
    """C tests"""
    if not stage.build("build", f"-DEVENKEEL_TEST_MODE={options.mode}"):
        return
    stage.ctest("build", *(["-R", f"^{options.only}$"] if options.only else []))
    info = LOGS / "info.json"
    if IN_CI and (stage.run(["build/evenkeel", "info", "--json", info])[0]
                  or json.loads(info.read_text())["nvrtc"]["missing"]):
        stage.fail("NVRTC not found, so no GPU kernel was compiled; install nvidia-cuda-nvrtc or set EVENKEEL_NVRTC")


def cli(stage, options):
    """output and exit statuses of the program, and its output in docs/cost.md"""
    if options.rest and not stage.build("build", f"-DEVENKEEL_TEST_MODE={options.mode}"):
        return
    stage.checks([sys.executable, "tests/cli/run.py", "build/evenkeel",
                  *(["--standin", "build/tests"] if options.rest else [])])
    stage.checks([sys.executable, "tools/cost_tables.py", "build/evenkeel"])


def docs(stage, options):
    """documents and scripts: names, quotes and messages in them are those of the sources"""
    stage.checks([sys.executable, "tests/docs/run.py"])
    stage.checks([sys.executable, "tests/dram/test.py"])


def consumers(stage, options):
    """an installation, and programs that use it"""
    stage.checks([sys.executable, "tests/consumers/run.py", *([] if options.rest else ["--quick"])])


def python(stage, options):
    """Python package, linked with the C build's library: NumPy, PyTorch"""
    if not has_modules(stage, "numpy", "pytest", "scikit_build_core", "torch", "xdist"):
        return
    if not has_python_headers():
        stage.skip("Python.h not found; install python3-dev")
        return
    if not stage.build("build", targets=["evenkeel_static", "standin_cuda", "standin_nvrtc"]):
        return
    if stage.run([PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-build-isolation", "--no-deps",
                  "-C", f"cmake.define.EVENKEEL_WERROR={'ON' if IN_CI else 'OFF'}",
                  "-C", f"cmake.define.EVENKEEL_PYTHON_LIBRARY={ROOT / 'build' / 'libevenkeel.a'}", "-e", "."])[0]:
        stage.fail("pip install -e . failed")
        return
    stage.pytest(PYTHON, "tests/python", "-n", jobs(), "--dist", "loadfile", f"--hypothesis-seed={options.seed}",
                 "-m", "slow" if options.rest else "not slow")


def package(stage, options):
    """pip install . compiles the package whole, and it computes"""
    if not has_modules(stage, "scikit_build_core", "numpy"):
        return
    with tempfile.TemporaryDirectory() as folder:
        if stage.run([PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-build-isolation",
                      "--no-deps", "-C", "build-dir=build-package", "--target", folder, "."])[0]:
            stage.fail("pip install . failed")
            return
        program = ("import evenkeel, numpy; assert evenkeel.__file__.startswith({0!r}), evenkeel.__file__; "
                   "print('ok', evenkeel.layer_norm(numpy.eye(4, dtype='f4')))")
        # -I -S: without .venv's editable installation, whose import hook comes first
        site = PYTHON.parent.parent / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        stage.checks([PYTHON, "-I", "-S", "-c", f"import sys; sys.path[:0] = [{folder!r}, {str(site)!r}]; "
                      + program.format(folder)])


def report(stage, options):
    """the page of make report: its form, bad input; in the long form also in Chromium"""
    if not has_modules(stage, "matplotlib", "pytest"):
        return
    browser = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")))
    if options.slow and not browser:
        stage.skip("no browser to show the page in; install chromium")
    ignored = [] if options.slow and browser else ["--ignore=tests/report/test_browser.py"]
    marked = [] if options.slow else ["-m", "slow" if options.rest else "not slow"]
    stage.pytest(PYTHON, "tests/report", *marked, *ignored)


def sanitized(stage, folder, sanitize, levels, tests=(), leave_out=()):
    """The C tests under a sanitizer: those named, or all but some."""
    if not links(os.environ.get("CC") or "cc", f"-fsanitize={sanitize}"):
        stage.skip(f"the compiler cannot link -fsanitize={sanitize}; install its sanitizer runtime")
    elif stage.build(folder, f"-DEVENKEEL_SANITIZE={sanitize}", "-DEVENKEEL_TEST_MODE=short",
                     f"-DEVENKEEL_LEVELS={levels}", "-DEVENKEEL_BUILD_EXAMPLES=OFF", "-DEVENKEEL_BUILD_CLI=OFF",
                     FAST_TO_COMPILE, targets=[f"test_{name}" for name in tests]):
        stage.ctest(folder, "-R" if tests else "-E", f"^({'|'.join(tests or leave_out)})$", env=SANITIZERS[sanitize])


def asan_short(stage, options):
    """bad arguments, guard pages, failing allocations under AddressSanitizer and UndefinedBehaviorSanitizer"""
    sanitized(stage, "build-asan", "address,undefined", "scalar", tests=SANITIZED_IN_SHORT)


def asan(stage, options):
    """C tests in short under AddressSanitizer and UndefinedBehaviorSanitizer"""
    sanitized(stage, "build-asan", "address,undefined", SANITIZED_LEVELS, leave_out=NOT_SANITIZED)


def tsan(stage, options):
    """tests of threads under ThreadSanitizer"""
    sanitized(stage, "build-tsan", "thread", SANITIZED_LEVELS, tests=("threads", "table", "cuda_loading"))


def clang(stage, options):
    """C tests in short, built by clang"""
    if has(stage, "clang", "clang") and stage.build(
            "build-clang", "-DCMAKE_C_COMPILER=clang", "-DEVENKEEL_TEST_MODE=short"):
        stage.ctest("build-clang", "-E", "^cuda_compile$")


def neon(stage, options):
    """C tests in short for 64-bit Arm, under qemu"""
    if os.uname().machine == "aarch64":
        return
    if (has(stage, "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu and libc6-dev-arm64-cross")
            and has(stage, "qemu-aarch64", "qemu-user")
            and stage.build("build-neon", "-DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake",
                            "-DEVENKEEL_TEST_MODE=short", "-DEVENKEEL_BUILD_EXAMPLES=OFF")):
        stage.ctest("build-neon", "-R", f"^({'|'.join(UNDER_QEMU)})$")
        emulated = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "build-neon/tests/test_bits", "short"]
        with concurrent.futures.ThreadPoolExecutor(int(jobs())) as pool:
            list(pool.map(lambda name: stage.checks([*emulated, name]), BITS_UNDER_QEMU))


def fuzz(stage, options):
    """libFuzzer over the argument structs"""
    if not has(stage, "clang", "clang"):
        return
    if not links("clang", "-fsanitize=fuzzer,address,undefined"):
        stage.skip("clang has no libFuzzer; install libclang-rt-dev of clang's version")
        return
    if not stage.build("build-fuzz", "-DCMAKE_C_COMPILER=clang", "-DEVENKEEL_BUILD_FUZZ=ON",
                       "-DEVENKEEL_SANITIZE=address,undefined", "-DEVENKEEL_BUILD_TESTS=OFF",
                       "-DEVENKEEL_BUILD_CLI=OFF", "-DEVENKEEL_BUILD_EXAMPLES=OFF", FAST_TO_COMPILE,
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


# ---- which run, in which order ----

class Entry(typing.NamedTuple):
    function: typing.Callable
    quick: int  # seconds on two cores as part of `make test`; 0: not a part
    rest: int   # seconds on two cores as part of what `make test-all` adds; 0: not a part


ENTRIES = {entry.function.__name__: entry for entry in (
    Entry(build, 125, 0), Entry(docs, 3, 0), Entry(cli, 60, 150), Entry(python, 120, 295), Entry(c, 155, 485),
    Entry(asan_short, 160, 0), Entry(consumers, 5, 45), Entry(report, 8, 65), Entry(package, 0, 40), Entry(asan, 0, 460),
    Entry(tsan, 0, 35), Entry(clang, 0, 240), Entry(neon, 0, 200), Entry(fuzz, 0, 85))}


def chosen(options):
    """The names of the stages to run, and the seconds that each takes on two cores."""
    if options.stages:
        return {name: max(ENTRIES[name].quick, ENTRIES[name].rest) for name in options.stages.split(",")}
    seconds = {name: entry.rest if options.rest else entry.quick for name, entry in ENTRIES.items()}
    return {name: value for name, value in seconds.items() if value}


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", help="names with commas, of " + ", ".join(ENTRIES))
    parser.add_argument("--rest", action="store_true", help="the stages that make test-all adds to make test")
    parser.add_argument("--slow", action="store_true", help="the full product of every sweep")
    parser.add_argument("--only", help="one C test, by its ctest name")
    parser.add_argument("--fuzz-seconds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31),
                        help="chooses the cases of sampled sweeps; by default another one each time")
    options = parser.parse_args()
    options.mode = "long" if options.slow else "" if options.rest else "short"
    unknown = [name for name in (options.stages or "").split(",") if name and name not in ENTRIES]
    if unknown:
        parser.error(f"--stages: {unknown[0]} is unknown; expected {', '.join(ENTRIES)}")
    return options


def main():
    options = parse()
    started = time.monotonic()
    display = Display(started)
    os.environ["EVENKEEL_TEST_SEED"] = str(options.seed)
    print(f"seed {options.seed} (SEED={options.seed} repeats the same sample)")
    stages, total = chosen(options), [0, 0, 0]
    for number, name in enumerate(stages, 1):
        left = list(stages)[number:]
        then = f"then {', '.join(left)} (about {minutes(sum(stages[other] for other in left))})" if left else "the last"
        display.begin(f"{number}/{len(stages)} {name}: {ENTRIES[name].function.__doc__}", then)
        stage, began = Stage(name, display), time.monotonic()
        ENTRIES[name].function(stage, options)
        stage.finish(time.monotonic() - began)
        total = [a + b for a, b in zip(total, (stage.passed, stage.failed, stage.skipped), strict=True)]
    print(f"{display.clock()} done; logs: build/logs/")
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    sys.exit(1 if total[1] or not total[0] else 0)


if __name__ == "__main__":
    main()
