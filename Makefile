# The front door. It finds (or brings into .venv) what a target needs and calls CMake and the scripts in
# tools/. SPDX-License-Identifier: MIT

## evenkeel: fused normalization kernels in C, the same bits everywhere
##
##   make run          build, verify bit for bit, benchmark on this machine, its CPU and its GPUs (minutes)
##   make test         C, the program, Python and PyTorch, one sanitizer: ten minutes on two cores
##   make install PREFIX=/usr/local
##
## More tests
##   make test-c       the C tests alone; TEST=NAME runs one of them
##   make test-python  the Python tests of make test alone; PyTorch is installed into .venv (5 GB)
##   make test-all     make test, then test-rest: larger samples, every sanitizer, clang, NEON under qemu, fuzzing,
##                     the report, programs that use an installation, all of PyTorch (35 minutes more)
##   make test-slow    the full product of every sweep, and the report's page in Chromium (hours)
##                     Sweeps are sampled; SEED=N repeats the sample of a run, which prints its seed.
##
## More of the library
##   make build        the libraries, the program build/evenkeel, the examples, the tests
##   make bench        the speed list against a copy and oneDNN; OPTIONS="--quick --csv FILE"
##   make compare      evenkeel and PyTorch, oneDNN and others through Python; OPTIONS="--quick --backends A,B"
##   make report       results as a page, build/report/index.html, and in the documents, from docs/results/
##                     (OPTIONS=--measure runs the speed list first, OPTIONS="FILE..." shows others)
##
## Changing the code
##   make lint         clang-format, clang-tidy, cppcheck, ruff, mypy, the scripts' syntax; make format reformats
##   make fuzz         libFuzzer over the argument structs; FUZZ_SECONDS=60
##   make coverage     lines and branches that the tests reach; pages in build-coverage/html/
##   make mutate       breaks the code on purpose and checks that the tests fail; writes docs/mutation.md
##   make golden       regenerates the golden digests and outputs, and docs/cost.md (read the diff)
##   make venv         everything in requirements.txt into .venv, and the Python package (pip install -e .)
##   make clean        removes the build folders (not .venv)
##
## Needed: a C compiler (tested: gcc 12, clang 14), make, Python 3.10. CMake and ninja are installed
## into .venv where the system has none. Variables: CC, JOBS, PYTHON, SEED.

PYTHON ?= python3
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
OPTIONS ?=
VENV := .venv
PIP := $(VENV)/bin/pip --disable-pip-version-check -q

# The system's CMake where it is new enough, else the pinned one.
system_cmake := $(shell cmake --version 2>/dev/null | \
	awk 'NR == 1 { split($$3, v, "."); print (v[1] > 3 || (v[1] == 3 && v[2] >= 18)) }')
ifeq ($(system_cmake),1)
export CMAKE := cmake
export CTEST := ctest
export NINJA := $(shell command -v ninja)
cmake_tools :=
else
export CMAKE := $(CURDIR)/$(VENV)/bin/cmake
export CTEST := $(CURDIR)/$(VENV)/bin/ctest
export NINJA := $(CURDIR)/$(VENV)/bin/ninja
cmake_tools := $(VENV)/.cmake
endif
export JOBS

# The peer that bench compares with has a package for x86-64 alone.
ifeq ($(shell uname -m),x86_64)
peer := $(VENV)/.peer
endif

# The compiler of GPU kernels, with which the tests compile all of them; no GPU is needed. Where the system has none,
# a wheel goes into .venv, where the library finds it; where that fails, those tests are skipped.
nvrtc_places := $(foreach root,$(CONDA_PREFIX) $(CUDA_HOME) $(CUDA_PATH) /usr/local/cuda,$(root)/lib64 $(root)/lib) \
	$(wildcard $(addsuffix /lib/python3*/site-packages/nvidia/*/lib,$(VIRTUAL_ENV)))
ifeq ($(EVENKEEL_NVRTC)$(wildcard $(addsuffix /libnvrtc.so*,$(nvrtc_places)))$(shell \
	PATH=$$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep 'libnvrtc\.so'),)
nvrtc := $(VENV)/.nvrtc
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
endif

.PHONY: help build run test test-all test-rest test-c test-python test-slow bench compare report lint format fuzz coverage mutate golden venv install clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^## \{0,1\}//p' Makefile

build: $(cmake_tools)
	@$(PYTHON) tools/build.py build

run: build
	build/evenkeel info
	build/evenkeel verify --quick --device all
	build/evenkeel bench --quick --device all

run_tests = $(PYTHON) tools/test.py $(if $(SEED),--seed $(SEED))

test: $(cmake_tools) $(nvrtc) $(VENV)/.python $(VENV)/.page $(peer)
	@$(run_tests)

test-all:
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-rest

test-rest: $(cmake_tools) $(nvrtc) $(VENV)/.python $(VENV)/.page $(peer)
	@$(run_tests) --rest

test-c: $(cmake_tools) $(nvrtc)
	@$(run_tests) --stages c $(if $(TEST),--only $(TEST))

test-python: $(cmake_tools) $(VENV)/.python $(peer)
	@$(run_tests) --stages python

test-slow: $(cmake_tools) $(nvrtc) $(VENV)/.page
	@$(run_tests) --stages c,report --slow

bench: build $(peer)
	LD_LIBRARY_PATH=$(VENV)/lib build/evenkeel bench $(OPTIONS)

compare: $(cmake_tools) $(VENV)/.python $(peer)
	$(PIP) install --no-build-isolation --no-deps -e .
	$(VENV)/bin/python bench/compare.py $(OPTIONS)

report: build $(VENV)/.report $(if $(findstring --measure,$(OPTIONS)),$(peer))
	PYTHONPATH=tools $(VENV)/bin/python -m report $(OPTIONS)

lint: $(cmake_tools) $(VENV)/.lint $(VENV)/.python
	@$(PYTHON) tools/lint.py

format:
	@$(PYTHON) tools/lint.py --fix

fuzz: $(cmake_tools)
	@$(run_tests) --stages fuzz --fuzz-seconds $(FUZZ_SECONDS)

coverage: $(cmake_tools) $(VENV)/.coverage
	@$(PYTHON) tools/coverage.py

mutate: $(cmake_tools)
	@$(PYTHON) tools/mutate.py

golden: build
	build/tests/test_golden --update
	build/tests/test_math --update
	$(PYTHON) tests/cli/run.py build/evenkeel --standin build/tests --update
	$(PYTHON) tools/cost_tables.py build/evenkeel --update

install: $(cmake_tools)
	@$(PYTHON) tools/build.py build --target evenkeel_installed
	$(CMAKE) --install build --prefix "$(PREFIX)"

clean:
	rm -rf build build-*

# ---- .venv: each stamp is a group of packages, at the versions of requirements.txt ----

venv: $(VENV)/bin/python
	$(PIP) install -r requirements.txt
	$(PIP) install --no-build-isolation --no-deps -e .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { echo "no venv module: install python3-venv" >&2; rm -rf $(VENV); exit 1; }

$(VENV)/.cmake: packages := cmake ninja
$(VENV)/.report: packages := matplotlib numpy
$(VENV)/.coverage: packages := gcovr
$(VENV)/.cmake $(VENV)/.report $(VENV)/.coverage: requirements.txt | $(VENV)/bin/python
	$(PIP) install -c requirements.txt $(packages)
	@touch $@

# Without a network, or without the venv module, the rest can still be tested; continuous integration needs them all.
$(VENV)/.nvrtc: packages := nvidia-cuda-nvrtc
$(VENV)/.nvrtc: without := the tests that compile GPU kernels
$(VENV)/.peer: packages := onednn-cpu-gomp
$(VENV)/.peer: without := the comparison with oneDNN
$(VENV)/.python: packages := scikit-build-core torch numpy ml_dtypes pytest pytest-cov pytest-xdist hypothesis transformers
$(VENV)/.python: without := the tests of the Python package
$(VENV)/.page: packages := matplotlib numpy pytest
$(VENV)/.page: without := the tests of the report
$(VENV)/.lint: packages := mypy ruff
$(VENV)/.lint: without := the checks of the Python package
$(VENV)/.nvrtc $(VENV)/.peer $(VENV)/.python $(VENV)/.page $(VENV)/.lint: requirements.txt
	@echo "installing $(packages) into $(VENV)"
	@{ test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV); } >/dev/null 2>&1 && \
		$(PIP) --retries 1 --timeout 20 install -c requirements.txt $(packages) 2>/dev/null && touch $@ || \
		{ echo "could not install $(packages); skipping $(without)"; test -z "$$CI"; }
