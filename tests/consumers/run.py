"""Installs evenkeel and uses it from outside, by the commands of README.md: `make install`, C and C++ programs by
pkg-config, find_package and add_subdirectory, shared and static. Then examines what was installed, and which files
a target compiles. Prints a line per check; called by tools/test.py after `make build`; `--quick` compiles the library
in no other project. SPDX-License-Identifier: MIT"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CMAKE = os.environ.get("CMAKE") or "cmake"
NINJA = os.environ.get("NINJA") or shutil.which("ninja")
JOBS = os.environ.get("JOBS") or "2"
CC = os.environ.get("CC") or "cc"
CXX = os.environ.get("CXX") or "c++"
NOT_PASSED_ON = ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "MAKEFLAGS", "MAKELEVEL")
failures = 0


class Refused(Exception):
    """A check that failed; the text says what was seen."""


def run(*command, env=None, cwd=None):
    command = [str(part) for part in command]
    inherited = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    try:
        result = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd,
            env={**inherited, **(env or {})},
        )
    except OSError as error:
        raise Refused(f"{' '.join(command)}: {error}") from error
    if result.returncode:
        raise Refused(f"{' '.join(command)}: status {result.returncode}\n{result.stdout}")
    return result.stdout


def check(name, function, *arguments):
    global failures
    try:
        skipped = function(*arguments)
        print(f"skipped {name}: {skipped}" if skipped else f"ok {name}", flush=True)
    except Refused as why:
        failures += 1
        print(f"FAILED {name}\n{why}", flush=True)


def expect(condition, text):
    if not condition:
        raise Refused(text)


# ---- README's commands ----


class Readme:
    """The section "Install and use", followed by a user whose home is a temporary folder."""

    def __init__(self, home):
        self.home = home
        self.prefix = home / ".local"
        self.work = home / "work"
        self.work.mkdir()
        self.section = (ROOT / "README.md").read_text().partition("## Install and use\n")[2].partition("\n## ")[0]
        self.setup = re.search(r"```sh\n(.*?)```", self.section, re.S).group(1)
        self.lib = "lib"
        for source in HERE.glob("program.*"):
            shutil.copy(source, self.work)

    def code(self, label):
        """The pieces of code in the table row of this label."""
        row = re.search(rf"^\| {re.escape(label)} \| (.*) \|$", self.section, re.M)
        expect(row, f"README.md: Install and use has no row '{label}'")
        return re.findall(r"`([^`]+)`", row.group(1))

    def shell(self, script, cwd=None):
        """Runs a script as README has it; only the name of lib may differ between distributions."""
        script = script.replace("/.local/lib", f"/.local/{self.lib}")
        return run("sh", "-ec", script, env={"HOME": str(self.home)}, cwd=cwd or self.work)

    def install(self):
        self.shell("\n".join(line for line in self.setup.splitlines() if line.startswith("make ")), cwd=ROOT)
        self.lib = next(self.prefix.rglob("libevenkeel.a")).parent.relative_to(self.prefix)

    def version(self):
        return re.search(r'EK_VERSION_STRING "(.*)"', (self.prefix / "include/evenkeel.h").read_text()).group(1)

    def compile(self, label, language):
        """By a row that starts with `cc program.c`, the same in C++; returns why that is not possible."""
        for tool in ("pkg-config", "cc" if language == "c" else "c++"):
            if not shutil.which(tool):
                return f"{tool} is not installed"
        exports = [line for line in self.setup.splitlines() if line.startswith("export ")]
        (command,) = self.code(label)
        expect(command.startswith("cc program.c "), f"README.md: the row '{label}' has no command for cc: {command}")
        if language == "c++":
            command = command.replace("cc program.c", "c++ program.cc", 1)
        (self.work / "program").unlink(missing_ok=True)
        self.shell("\n".join([*exports, command]))
        return None


def says_right(text):
    expect(text.startswith("right"), text)


def links_shared(program, shared):
    needed = re.findall(r"\(NEEDED\).*\[(libevenkeel.*)\]", run("readelf", "-d", program))
    expect(bool(needed) == shared, f"{program.name} needs {needed or 'no libevenkeel.so'} at run time")


def by_pkg_config(readme, label, language, shared):
    skipped = readme.compile(label, language)
    if skipped:
        return skipped
    links_shared(readme.work / "program", shared)
    (through_environment,) = readme.code("through the environment")
    run_path = "-rpath" in readme.code(label)[0]
    says_right(readme.shell("./program" if run_path or not shared else through_environment))


def wholly_static(readme):
    flags = run(
        "pkg-config",
        "--static",
        "--cflags",
        "--libs",
        "evenkeel",
        env={"PKG_CONFIG_PATH": str(readme.prefix / readme.lib / "pkgconfig")},
    ).split()
    run(CC, "-static", HERE / "program.c", "-o", readme.work / "whole", *flags)
    says_right(run(readme.work / "whole"))


def moved_installation(readme):
    moved = readme.home / "moved"
    moved.mkdir()
    other = Readme(moved)
    shutil.copytree(readme.prefix, other.prefix, symlinks=True)
    other.lib = readme.lib
    readme.prefix.rename(readme.home / "away")
    try:
        return by_pkg_config(other, "through the program's run path", "c", True)
    finally:
        (readme.home / "away").rename(readme.prefix)


# ---- CMake projects ----


def with_ninja():
    return ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={NINJA}"] if NINJA else []


def project(readme, name, label):
    """A copy of the project, which has README's lines of that row literally."""
    folder = readme.home / name
    shutil.copytree(HERE / name, folder)
    for file in (*HERE.glob("program.*"), HERE / "programs.cmake"):
        shutil.copy(file, folder)
    text = (folder / "CMakeLists.txt").read_text() + (folder / "programs.cmake").read_text()
    for line in (*readme.code(label), *readme.code("CMake, static library")):
        expect(line in text or line.startswith("cmake "), f"README.md: tests/consumers/{name} does not have {line}")
    return folder


def builds_and_runs(folder):
    run(CMAKE, "--build", folder / "build", "-j", JOBS)
    for name in ("program", "program_static", "program_cc", "program_cc_static"):
        program = folder / "build" / name
        links_shared(program, not name.endswith("static"))
        says_right(run(program))


def by_find_package(readme):
    if not shutil.which(CXX):
        return f"{CXX} is not installed"
    folder = project(readme, "find_package", "CMake, installed")
    configure = readme.code("CMake, installed")[-1]
    expect(configure.startswith("cmake "), f"README.md: the row 'CMake, installed' ends with {configure}")
    readme.shell(f"{shlex.quote(CMAKE)}{configure.removeprefix('cmake')}", cwd=folder)
    builds_and_runs(folder)


def by_add_subdirectory(readme):
    """A parent with flags that must not reach the kernels, and whose sources are compiled several at once."""
    if not shutil.which(CXX):
        return f"{CXX} is not installed"
    folder = project(readme, "add_subdirectory", "CMake, in your tree")
    (folder / "evenkeel").symlink_to(ROOT)
    run(CMAKE, "-B", "build", *with_ninja(), "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_BUILD_TYPE=None", cwd=folder)
    builds_and_runs(folder)


def version_is_compared(readme):
    source = readme.home / "version"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(outside LANGUAGES C)\nfind_package(evenkeel 99 CONFIG)\n"
        'if(evenkeel_FOUND)\n\tmessage(FATAL_ERROR "version 99 was found")\nendif()\n'
        f"find_package(evenkeel {readme.version().rpartition('.')[0]} REQUIRED CONFIG)\n"
    )
    run(CMAKE, "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={readme.prefix}")


# ---- what a target of an empty build folder compiles ----

WITHOUT_NINJA = "make cannot list the steps of an empty folder: install ninja-build"


def steps(folder, targets):
    """What building these targets would do."""
    if not folder.exists():
        run(CMAKE, "-S", ROOT, "-B", folder, *with_ninja())
    return run(CMAKE, "--build", folder, "--target", *targets, "--", "-n")


def target_evenkeel_is_the_library(folder):
    if not NINJA:
        return WITHOUT_NINJA
    text = steps(folder, ["evenkeel"])
    expect("libevenkeel.so" in text and "evenkeel_cli" not in text, f"--target evenkeel:\n{text}")


def make_install_compiles_only_what_it_installs(folder):
    if not NINJA:
        return WITHOUT_NINJA
    command = next(line for line in run("make", "-n", "install", cwd=ROOT).splitlines() if "tools/build.py" in line)
    targets = command.partition("--target ")[2].split() or ["all"]
    text = steps(folder, targets)
    compiled = set(re.findall(r"Building C object CMakeFiles/(\w+)\.dir", text))
    levels = {f"evenkeel_{level}" for level in ("scalar", "avx2", "avx512", "avx512bf16", "neon")}
    expect(
        compiled - levels == {"evenkeel_objects", "evenkeel_cli"}, f"{command}\ncompiles {', '.join(sorted(compiled))}"
    )
    for name in ("libevenkeel.so", "libevenkeel.a", "bin/evenkeel"):
        expect(name in text, f"{command}\ndoes not build {name}")


# ---- what is installed ----


def installed_files(readme, version):
    lib, major = readme.lib, version.split(".")[0]
    for path in (
        "include/evenkeel.h",
        "include/evenkeel/cost.h",
        "bin/evenkeel",
        f"{lib}/libevenkeel.a",
        f"{lib}/libevenkeel.so",
        f"{lib}/libevenkeel.so.{major}",
        f"{lib}/libevenkeel.so.{version}",
        f"{lib}/pkgconfig/evenkeel.pc",
        f"{lib}/pkgconfig/evenkeel-static.pc",
        f"{lib}/cmake/evenkeel/evenkeelConfig.cmake",
        f"{lib}/cmake/evenkeel/evenkeelConfigVersion.cmake",
        f"{lib}/cmake/evenkeel/evenkeelTargets.cmake",
    ):
        expect((readme.prefix / path).exists(), f"{path} is not installed")


def exports_only_ek(shared):
    names = {
        line.split()[-1].split("@")[0]
        for line in run("nm", "-D", "--defined-only", shared).splitlines()
        if line.strip()
    }
    strangers = sorted(name for name in names if not name.startswith("ek_"))
    expect(not strangers, f"also exported: {', '.join(strangers)}")
    headers = "".join(path.read_text() for path in (ROOT / "include").rglob("*.h"))
    declared = set(re.findall(r"^EK_API[^;]*?\b(ek_\w+)\(", headers, re.M))
    expect(
        names == declared,
        f"exported but not in the headers: {sorted(names - declared)}; "
        f"in the headers but not exported: {sorted(declared - names)}",
    )


def soname(shared, version):
    text = run("readelf", "-d", shared)
    expect(f"[libevenkeel.so.{version.split('.')[0]}]" in text, text)
    expect("NODELETE" in text, f"not marked nodelete:\n{text}")


def needs_libc_alone(shared):
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", shared))
    allowed = re.compile(r"(libc|libm|libdl|libpthread|ld-linux.*)\.so\.\d+$")
    expect(all(allowed.match(name) for name in needed), f"needs {needed}")


def installed_program(prefix, version):
    text = run(prefix / "bin/evenkeel", "info")
    expect(version in text, text)


def headers_compile(prefix, compiler, *flags):
    if not shutil.which(compiler):
        return f"{compiler} is not installed"
    for header in ("evenkeel.h", "evenkeel/cost.h"):
        run(
            compiler,
            *flags,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-fsyntax-only",
            "-I",
            prefix / "include",
            "-include",
            header,
            "/dev/null",
        )


def check_installed(readme):
    version = readme.version()
    shared = readme.prefix / readme.lib / "libevenkeel.so"
    check("install_puts_every_file_in_place", installed_files, readme, version)
    check("shared_library_exports_the_headers_and_no_more", exports_only_ek, shared)
    check("shared_library_has_its_soname_and_stays_loaded", soname, shared, version)
    check("shared_library_needs_libc_alone", needs_libc_alone, shared)
    check("installed_program_runs", installed_program, readme.prefix, version)
    check("headers_are_c11", headers_compile, readme.prefix, CC, "-std=c11", "-xc")
    check("headers_are_c++11", headers_compile, readme.prefix, CXX, "-std=c++11", "-xc++")
    check("headers_are_c++17", headers_compile, readme.prefix, CXX, "-std=c++17", "-xc++")


def check_programs(readme):
    for language in ("c", "c++"):
        check(f"{language}_by_pkg_config", by_pkg_config, readme, "pkg-config", language, True)
        check(
            f"{language}_by_pkg_config_with_the_static_library",
            by_pkg_config,
            readme,
            "pkg-config, static library",
            language,
            False,
        )
        check(
            f"{language}_by_pkg_config_with_a_run_path",
            by_pkg_config,
            readme,
            "through the program's run path",
            language,
            True,
        )
    check("c_by_pkg_config_wholly_static", wholly_static, readme)
    check("installation_can_be_moved", moved_installation, readme)
    check("c_and_c++_by_find_package", by_find_package, readme)
    check("find_package_compares_the_version", version_is_compared, readme)
    if "--quick" not in sys.argv:
        check("c_and_c++_by_add_subdirectory_in_a_unity_build", by_add_subdirectory, readme)


def main():
    with tempfile.TemporaryDirectory() as name:
        readme = Readme(pathlib.Path(name))
        check("make_install_as_in_readme", readme.install)
        if not failures:
            check_installed(readme)
            check_programs(readme)
        check("target_evenkeel_is_the_library", target_evenkeel_is_the_library, readme.home / "empty")
        check(
            "make_install_compiles_only_what_it_installs",
            make_install_compiles_only_what_it_installs,
            readme.home / "empty",
        )
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
