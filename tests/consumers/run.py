"""Installs a build into a temporary prefix and uses it from outside: a C and a C++ program by pkg-config,
find_package and add_subdirectory, shared and static; then looks at what was installed. Prints a line per
check; `run.py BUILD`, called by tools/test.py. SPDX-License-Identifier: MIT"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CMAKE = os.environ.get("CMAKE") or "cmake"
JOBS = os.environ.get("JOBS") or "2"
CC = os.environ.get("CC") or "cc"
CXX = os.environ.get("CXX") or "c++"
failures = 0


class Refused(Exception):
    """A check that did not hold; the text says what was seen."""


def run(*command, env=None, cwd=None):
    command = [str(part) for part in command]
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd,
                                env={**os.environ, **(env or {})})
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


# ---- what is installed ----

def installed_files(prefix, lib, version):
    major = version.split(".")[0]
    for path in ("include/evenkeel.h", "bin/evenkeel", f"{lib}/libevenkeel.a", f"{lib}/libevenkeel.so",
                 f"{lib}/libevenkeel.so.{major}", f"{lib}/libevenkeel.so.{version}", f"{lib}/pkgconfig/evenkeel.pc",
                 f"{lib}/cmake/evenkeel/evenkeelConfig.cmake", f"{lib}/cmake/evenkeel/evenkeelConfigVersion.cmake",
                 f"{lib}/cmake/evenkeel/evenkeelTargets.cmake"):
        expect((prefix / path).exists(), f"{path} is not installed")


def exports_only_ek(shared):
    names = {line.split()[-1].split("@")[0] for line in
             run("nm", "-D", "--defined-only", shared).splitlines() if line.strip()}
    strangers = sorted(name for name in names if not name.startswith("ek_"))
    expect(not strangers, f"also exported: {', '.join(strangers)}")
    declared = set(re.findall(r"^EK_API[^;]*?\b(ek_\w+)\(", (ROOT / "include/evenkeel.h").read_text(), re.M))
    expect(names == declared, f"exported but not in the header: {sorted(names - declared)}; "
           f"in the header but not exported: {sorted(declared - names)}")


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


# ---- the header and outside programs ----

def header_compiles(prefix, compiler, *flags):
    if not shutil.which(compiler):
        return f"{compiler} is not there"
    run(compiler, *flags, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only",
        "-I", prefix / "include", "-include", "evenkeel.h", "/dev/null")


def by_pkg_config(prefix, lib, folder, source, static):
    if not shutil.which("pkg-config"):
        return "pkg-config is not there: install pkg-config"
    compiler = CXX if source.endswith(".cc") else CC
    if not shutil.which(compiler):
        return f"{compiler} is not there"
    env = {"PKG_CONFIG_PATH": str(prefix / lib / "pkgconfig")}
    query = ["pkg-config", *(["--static"] if static else []), "--cflags", "--libs", "evenkeel"]
    flags = run(*query, env=env).split()
    program = folder / f"pc_{source.replace('.', '_')}_{'static' if static else 'shared'}"
    run(compiler, HERE / source, "-o", program, *(["-static"] if static else []), *flags, "-lm")
    said = run(program, env={} if static else {"LD_LIBRARY_PATH": str(prefix / lib)})
    expect(said.startswith("right"), said)


def by_cmake(project, folder, *definitions):
    if not shutil.which(CXX):
        return f"{CXX} is not there"
    build = folder / project
    ninja = os.environ.get("NINJA")
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    run(CMAKE, "-S", HERE / project, "-B", build, *generator, *definitions)
    run(CMAKE, "--build", build, "-j", JOBS)
    for program in ("c_evenkeel", "c_evenkeel_static", "cc_evenkeel", "cc_evenkeel_static"):
        said = run(build / program)
        expect(said.startswith("right"), f"{program}: {said}")


def wrong_version_is_refused(folder, prefix):
    source = folder / "wrong_version"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(outside LANGUAGES C)\nfind_package(evenkeel 99 CONFIG)\n"
        "if(evenkeel_FOUND)\n\tmessage(FATAL_ERROR \"version 99 was found\")\nendif()\n")
    run(CMAKE, "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={prefix}")


def moved_installation(prefix, lib, folder):
    moved = folder / "moved"
    shutil.copytree(prefix, moved, symlinks=True)
    return by_pkg_config(moved, lib, moved, "consumer.c", False)


def main():
    build = (ROOT / sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prefix = folder / "prefix"
        run(CMAKE, "--install", build, "--prefix", prefix)
        lib = next(prefix.rglob("libevenkeel.a")).parent.relative_to(prefix)
        version = re.search(r'EK_VERSION_STRING "(.*)"', (prefix / "include/evenkeel.h").read_text()).group(1)
        shared = prefix / lib / "libevenkeel.so"
        check("install_puts_every_file_in_place", installed_files, prefix, lib, version)
        check("shared_library_exports_the_header_and_no_more", exports_only_ek, shared)
        check("shared_library_has_its_soname_and_stays_loaded", soname, shared, version)
        check("shared_library_needs_libc_alone", needs_libc_alone, shared)
        check("installed_program_runs", installed_program, prefix, version)
        check("header_is_c11", header_compiles, prefix, CC, "-std=c11", "-xc")
        check("header_is_c++11", header_compiles, prefix, CXX, "-std=c++11", "-xc++")
        check("header_is_c++17", header_compiles, prefix, CXX, "-std=c++17", "-xc++")
        for source, language in (("consumer.c", "c"), ("consumer.cc", "c++")):
            for static in (False, True):
                check(f"{language}_by_pkg_config_{'static' if static else 'shared'}", by_pkg_config, prefix, lib,
                      folder, source, static)
        check("installation_can_be_moved", moved_installation, prefix, lib, folder)
        check("c_and_c++_by_find_package", by_cmake, "find_package", folder, f"-DCMAKE_PREFIX_PATH={prefix}")
        check("find_package_refuses_another_version", wrong_version_is_refused, folder, prefix)
        check("c_and_c++_by_add_subdirectory", by_cmake, "add_subdirectory", folder, f"-DEVENKEEL_SOURCE={ROOT}",
              "-DCMAKE_BUILD_TYPE=Debug")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
