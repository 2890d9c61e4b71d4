#!/usr/bin/env bash
# Everything that is to be checked on a machine with a GPU, in parts of under eight minutes. SPDX-License-Identifier: MIT
# shellcheck disable=SC2317 # the parts are called by name
set -u
shopt -s nullglob
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
	cat <<'END'
usage: tests/gpu_check.sh [PART …]        (no PART: all but dram and bench)

Checks evenkeel on this machine's GPU. Each part takes under eight minutes on 16 cores, and can be run alone. Most of the
time goes into compiling kernels, so a part is many processes at once; each says a line when it ends, and the part
ends with `PART: N passed, N failed, N skipped, N s`. What failed is shown with the end of its log.

  build      configures and builds with CMake; the other parts begin with it where it was not done
  bits       evenkeel verify --full: every op, shape, dtype, pass and operand form against the CPU reference, bit for bit,
             and the choices of dtypes and options
  widths     evenkeel verify on 128 widths, with rows enough for slots of several chunks
  tests      the C tests that can test a GPU, in short: bits, sample, gradients, accuracy, guard
  golden     the golden digests
  sanitize   evenkeel verify --quick under compute-sanitizer: memcheck, racecheck, initcheck, synccheck
  graphs     graphs, many threads and streams at once, exp and the activations, the host's cost of a call
  large      tensors of over 2^31 elements and of over 2^31 rows (up to 60 GB of GPU memory)
  python     the tests of evenkeel.torch and bench/compare.py on the GPU, where $PYTHON has PyTorch and pytest
  dram       the bytes that the memory moves, counted by ncu (Nsight Compute), beside those of evenkeel explain
  bench      evenkeel bench, into $BUILD/bench-cuda.json; nothing else should run on the GPU

  tests/gpu_check.sh bits golden             two parts
  CUDA_VISIBLE_DEVICES=1 tests/gpu_check.sh  another GPU
  JOBS=4 BUILD=build tests/gpu_check.sh bits

BUILD   the build folder (build-gpu); logs are kept in it, and compiled kernels, so that a second run is faster
JOBS    processes at once (the number of cores); each takes up to 2 GB of GPU memory
LIMIT   seconds that a part may take (460)
PYTHON  of the part python (python3)
MODE    short: a trial in minutes, with the quick list, few widths and small tensors

Exit status: 0 all is well, 1 something failed, 2 no such part, 3 no GPU that can be used.
END
}

build=${BUILD:-build-gpu}
[[ $build = /* ]] || build=$root/$build
limit=${LIMIT:-460}
mode=${MODE:-default}
most_jobs=${JOBS:-$(nproc)}
parts=(build bits widths tests golden sanitize graphs large python)

# ---- the processes of a part: several at once, each with a log ----

begin() {
	started=$SECONDS skipped=0 names=()
	logs=$build/gpu-logs/$1
	rm -rf "$logs"
	mkdir -p "$logs"
	echo "$1"
}

# run NAME KERNELS COMMAND …: within what the part has left of its time
run() {
	local name=$1 kernels=$2 began=$SECONDS left=$((limit - (SECONDS - started))) status=124 word=FAILED
	shift 2
	if ((left > 0)); then
		EVENKEEL_CACHE=$build/kernels/$kernels timeout -k 10 $left "$@" >"$logs/$name.log" 2>&1 &
		# shellcheck disable=SC2064 # the process of now
		trap "word=stopped; kill $!" TERM
		wait $!
		status=$?
	else
		echo "not started: the part's time was over" >"$logs/$name.log"
	fi
	echo $status >"$logs/$name.status"
	[ $status != 0 ] || word=ok
	printf '  %-7s %-60s %4d s\n' $word "$name" $((SECONDS - began))
}

# job NAME KERNELS COMMAND …: runs it beside the others. KERNELS is its folder of compiled kernels: such folders are
# bounded, and one for all would be too small.
job() {
	names+=("$1")
	while (($(jobs -rp | wc -l) >= most_jobs)); do
		wait -n
	done
	run "$@" &
}

# show_failure PART NAME STATUS
show_failure() {
	echo "  FAILED $1 $2 (status $3; the whole log: $logs/$2.log)"
	[ "$3" != 124 ] || echo "    | not done within $limit s: again (what was compiled is kept), or LIMIT=900"
	tail -n 12 "$logs/$2.log" 2>/dev/null | sed 's/^/    | /'
}

# Waits for the processes, shows those that failed, prints the part's line; false if any failed, or none was there.
finish() {
	local part=$1 passed=0 failed=0 name status
	wait
	for name in "${names[@]}"; do
		status=$(cat "$logs/$name.status" 2>/dev/null || echo "none: it was killed")
		skipped=$((skipped + $(grep -c '^skipped' "$logs/$name.log")))
		if [ "$status" = 0 ]; then
			passed=$((passed + 1))
		else
			failed=$((failed + 1))
			show_failure "$part" "$name" "$status"
		fi
	done
	cat /dev/null "$logs"/*.log | grep -E '^skipped|^  host:' | sed 's/^/  /'
	echo "$part: $passed passed, $failed failed, $skipped skipped, $((SECONDS - started)) s"
	[ $failed = 0 ] && ((passed + skipped > 0))
}

skip() {
	echo "  skipped $*"
	skipped=$((skipped + 1))
}

interrupted() {
	trap - INT TERM
	# shellcheck disable=SC2046 # several
	kill $(jobs -rp) 2>/dev/null
	wait
	echo "gpu_check: interrupted" >&2
	exit 130
}

# ---- the parts ----

part_build() {
	local generator=()
	[ -f "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || generator=(-G Ninja)
	job configure none cmake -S "$root" -B "$build" "${generator[@]}" -DEVENKEEL_BUILD_EXAMPLES=OFF
	wait
	job compile none cmake --build "$build" -j "$most_jobs"
}

# The ops of the registry, from its source; without the names for a part of one.
ops() {
	sed -n '/^\t\/\*/q; s/^\t[A-Z_]*[({]"\([a-z0-9_]*\)",.*/\1/p' "$root/src/ops/registry.c"
}

# Those on heads, which have shapes of their own.
ops_on_heads="rope qk_norm_rope"

# in_turn OP DTYPES: a short run has the pairs of 16-bit dtypes by turns, two for each norm
in_turn() {
	case $1-$2 in
	*rms_norm*-bf16,f32 | *rms_norm*-f16,f16 | *layer_norm*-bf16,bf16 | *layer_norm*-f16,f32) return 1 ;;
	esac
}

# verify NAME OPS ARGUMENT …: by pass, dtypes and op, those with the most to compile first
verify() {
	local name=$1 ops=$2 pass dtypes op of
	shift 2
	for pass in backward forward; do
		for dtypes in bf16,bf16 bf16,f32 f16,f16 f16,f32 f32,f32 f64,f64; do
			for op in $ops; do
				[ "$mode" != short ] || in_turn "$op" "$dtypes" || continue
				of=$op-$pass-${dtypes/,/-}
				job "$name-$of" "$of" "$build/evenkeel" verify "$op" --device cuda --pass "$pass" \
					--dtype "${dtypes%,*}" --weight-dtype "${dtypes#*,}" "$@"
			done
		done
	done
}

# takes OP OPTION …: whether the op has the operands that the options are about
takes() {
	local op=$1
	shift
	[[ "$*" != *--residual-dtype* || $op = add_* || $op = *_residual ]] &&
		[[ "$*" != *--activation* || $op = *_act || $op = *_gated || $op = glu ]] &&
		[[ "$*" != *--activation\ relu* || $op = glu || $op = bias_act ]] &&
		[[ ! "$*" =~ --(out-dtype|rounding|weight-offset) || $op = *norm* ]] &&
		[[ ! "$*" =~ --(interleaved|packed) || $op = glu ]] &&
		[[ "$*" != *--gate-first* || $op = *_gated ]]
}

# choose NAME DTYPE OPTION …: one choice of dtypes and options, of every op and pass: some shapes, and one in every form
choose() {
	local name=$1 dtype=$2 pass op
	shift 2
	for pass in backward forward; do
		for op in $(ops); do
			takes "$op" "$@" || continue
			job "$name-$op-$pass" "choices-$op-$pass" "$build/evenkeel" verify "$op" --device cuda --pass "$pass" \
				--dtype "$dtype" --shapes "$(shapes 100 4096 20001 50000),5x1000" "$@"
		done
	done
}

# Heads of many forms, in few and many tokens: 2048 slots and chunks of them, and what each choice makes a kernel of its own.
heads() {
	local op pass dim
	for op in $ops_on_heads; do
		for pass in backward forward; do
			for dim in 32 64 80 96 128 192 256 512; do
				job "head-$dim-$op-$pass" "heads-$op-$pass-$dim" "$build/evenkeel" verify "$op" --device cuda \
					--pass "$pass" --dtype bf16,f32 --head-dim "$dim" --shapes "300x$((8 * dim)),9000x$((16 * dim))"
			done
			job "rotary-$op-$pass" "heads-$op-$pass-rotary" "$build/evenkeel" verify "$op" --device cuda --pass "$pass" \
				--dtype bf16,f16 --head-dim 128 --rotary-dim 64 --trailing 1 --interleaved 1 --kv-heads 2 --shapes 70x1024
			job "positions-$op-$pass" "heads-$op-$pass-positions" "$build/evenkeel" verify "$op" --device cuda \
				--pass "$pass" --dtype bf16 --head-dim 64 --positions 1 --batch 3 --heads-first 1 --shapes 300x1024
		done
	done
	for pass in backward forward; do
		job "last-$pass" "heads-last-$pass" "$build/evenkeel" verify qk_norm_rope --device cuda --pass "$pass" \
			--dtype bf16,f32 --head-dim 128 --norm-last 1 --shapes 300x2048
		job "layer-$pass" "heads-layer-$pass" "$build/evenkeel" verify qk_norm_rope --device cuda --pass "$pass" \
			--dtype bf16,f64 --head-dim 96 --norm layer_norm --shapes 300x1152
	done
}

part_bits() {
	if [ "$mode" = short ]; then
		verify quick "$(ops) $ops_on_heads" --quick
	else
		verify full "$(ops) $ops_on_heads" --full
	fi
	heads
	choose wide bf16 --residual-dtype f32 --out-dtype f32 --gradient-dtype f32
	choose each f16 --rounding each --weight-offset 1
	choose narrow f32 --out-dtype bf16 --rounding each
	choose sigmoid bf16 --activation sigmoid
	choose silu f16 --activation silu --weight-offset 1
	choose tanh bf16 --activation gelu_tanh --rounding each
	choose gate bf16 --gate-first 1
	choose gate_each f16 --gate-first 1 --rounding each --activation sigmoid
	choose relu f16 --activation relu
	choose squared bf16 --activation relu_squared --gradient-dtype f32
	choose gelu f32 --activation gelu
	choose packed bf16 --packed 1
	choose pairs bf16 --interleaved 1 --limit 2 --alpha 1.702 --value-offset 1
}

# So many rows that verify takes the plain form alone: forms are the business of bits.
shapes() {
	local list="" width
	for width in "$@"; do
		list+=",$((2000000 / width + 1))x$width"
	done
	echo "${list#,}"
}

part_widths() {
	if [ "$mode" = short ]; then
		verify few "$(ops)" --shapes "$(shapes 7 129 1500)"
		return
	fi
	# shellcheck disable=SC2046
	verify narrow "$(ops)" --shapes "$(shapes $(seq 1 40) 47 48 49 63 64 65 95 96 97 127 128 129 191 192 193 255 256 257 319 \
		383 384 385 447 448)"
	verify wide "$(ops)" --shapes "$(shapes 511 512 513 575 576 640 641 767 768 769 895 896 1000 1023 1024 1025 1151 1280 1500 \
		1535 1536 1537 1600 1792 2000 2047 2048 2049 2500 2560 3000 3071 3072 3073 3333 4000 4095 4096 4097 \
		5000 5119 5120 5121 6000 6144 6145 7168 7169 8191 8192 8193 9000 10240 12288 12289 16383 16384 16385 20000 \
		32768 32769 65536 65537 131072)"
}

# The names of a test program's tests, from its source.
tests_of() {
	sed -n 's/^TEST(\([a-z0-9_]*\))/\1/p' "$root/tests/test_$1.c"
}

# slices N PROGRAM TEST: a test in N processes
slices() {
	local slice
	for ((slice = 0; slice < $1; slice++)); do
		job "$2-$3-$slice-of-$1" "$2-$slice" env EVENKEEL_TEST_DEVICE=cuda "EVENKEEL_TEST_SLICE=$slice/$1" \
			"$build/tests/test_$2" short "$3"
	done
}

part_tests() {
	local program name
	for program in bits sample glu rope; do
		for name in $(tests_of "$program"); do
			# Over 200 widths one after another: part widths has them in many processes.
			[ "$name" = all_widths_to_2100 ] || slices 4 "$program" "$name"
		done
	done
	for program in gradients accuracy; do
		for name in $(tests_of "$program"); do
			slices 1 "$program" "$name"
		done
	done
	job guard guard env EVENKEEL_TEST_DEVICE=cuda "$build/tests/test_guard" short
}

part_golden() {
	local slice words=()
	[ "$mode" != short ] || words=(short)
	for ((slice = 0; slice < most_jobs; slice++)); do
		job "slice-$slice-of-$most_jobs" "golden-$slice" env EVENKEEL_TEST_DEVICE=cuda \
			"EVENKEEL_TEST_SLICE=$slice/$most_jobs" "$build/tests/test_golden" "${words[@]}"
	done
}

sanitizer() {
	local candidate
	for candidate in "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" \
		"${CUDA_HOME:-/usr/local/cuda}/compute-sanitizer/compute-sanitizer"; do
		if [ -x "$candidate" ]; then
			echo "$candidate"
			return
		fi
	done
}

# sanitize TOOL NAME ARGUMENT …: evenkeel under a tool of $program; under `compile`, alone
sanitize() {
	local tool=$1 name=$2 command=()
	shift 2
	[ "$tool" = compile ] ||
		command=("$program" --tool "$tool" --num-cuda-barriers 200000 --error-exitcode 9 --report-api-errors no)
	job "$tool-$name" "quick-${name%%-*}-${name#*-}" "${command[@]}" "$build/evenkeel" "$@"
}

# The quick list has every policy: one warp a row, several, clusters, rows that are read again, column sums of several
# slots. Its kernels are compiled first: the compiler is not to be watched. racecheck has shapes of its own: where warps of
# a block pass different numbers of named barriers, as those of slots without a row do, it loses count of them, and what
# the barriers of the whole block keep apart it takes for races.
part_sanitize() {
	local program tool pass dtype list dtypes op
	program=$(sanitizer)
	if [ -z "$program" ]; then
		skip "sanitize: compute-sanitizer is not there: install it with the CUDA toolkit, or set CUDA_HOME"
		return
	fi
	for tool in compile memcheck initcheck synccheck; do
		for pass in backward forward; do
			for dtype in bf16 f16 f32 f64; do
				sanitize "$tool" "$pass-$dtype" verify --quick --device cuda --dtype "$dtype" --pass "$pass"
				sanitize "$tool" "heads-$pass-$dtype" verify rope qk_norm_rope --device cuda --dtype "$dtype" \
					--pass "$pass" --shapes 70x512,9x768
			done
		done
		[ $tool != compile ] || wait
	done
	list=16x100,16x1000,16x2047,16x5000,16x12288,2x40000 dtypes=(bf16 f16 f32 f64)
	[ "$mode" != short ] || list=4x1000,4x5000 dtypes=(bf16 f32)
	for pass in backward forward; do
		for dtype in "${dtypes[@]}"; do
			sanitize racecheck "$pass-$dtype-heads" verify rope qk_norm_rope --shapes 70x512 --device cuda \
				--dtype "$dtype" --pass "$pass"
			for op in $(ops); do
				sanitize racecheck "$pass-$dtype-$op" verify "$op" --shapes "$list" --device cuda --dtype "$dtype" \
					--pass "$pass"
			done
		done
	done
}

part_graphs() {
	local name
	for name in replay_equals_a_plain_call capture_after_prepare many_threads_and_streams_at_once; do
		job "$name" "$name" "$build/tests/gpu_extra" "$mode" "$name"
	done
	job functions_of_src_math math "$build/tests/gpu_math" "$mode"
	wait # the next is a measurement
	job host_cost_of_a_warm_call graphs "$build/tests/gpu_extra" "$mode" host_cost_of_a_warm_call
}

# One after another: each fills a good part of the memory.
part_large() {
	local name
	for name in more_than_2_31_elements_forward more_than_2_31_elements_backward column_sums_over_2_31_elements \
		more_than_2_31_rows more_than_2_31_elements_on_heads; do
		job "$name" large "$build/tests/gpu_extra" "$mode" "$name"
		wait
	done
}

# The package as it would be installed: its files, and the extension that was built.
python_package() {
	local file
	[ -f "$build/python/evenkeel/_core.abi3.so" ] || {
		cmake -S "$root" -B "$build" -DEVENKEEL_BUILD_PYTHON=ON &&
			cmake --build "$build" --target evenkeel_python -j "$most_jobs"
	} >"$logs/build.txt" 2>&1 || return 1
	mkdir -p "$build/package/evenkeel"
	for file in "$root"/python/evenkeel/* "$build/python/evenkeel/_core.abi3.so"; do
		ln -sfn "$file" "$build/package/evenkeel/"
	done
}

# pytest_slices PYTHON FILE: in one process, or in several where most tests compile kernels of their own. A short run
# has two slices of those, and no test that is slow: none of bench/compare.py.
pytest_slices() {
	local name slices=1 slice marks=()
	name=$(basename "$2" .py)
	[ "$mode-$name" != short-test_bench_compare ] || return 0
	[ "$name" != test_torch_fused ] || slices=16
	[ "$mode" != short ] || marks=(-m "not slow")
	for ((slice = 0; slice < slices; slice++)); do
		[ "$mode" != short ] || ((slice < 2)) || break
		job "$name-$slice-of-$slices" "python-$slice" env EVENKEEL_TEST_DEVICE=cuda "EVENKEEL_TEST_SLICE=$slice/$slices" \
			"PYTHONPATH=$build/package" "$1" -m pytest -q -p no:cacheprovider "${marks[@]}" "$2"
	done
}

part_python() {
	local python=${PYTHON:-python3} file
	if ! "$python" -c "import pytest, torch; assert torch.cuda.is_available()" >/dev/null 2>&1; then
		skip "python: $python has no PyTorch that can use the GPU, or no pytest"
		return
	fi
	python_package || echo "  the extension could not be built: $logs/build.txt"
	for file in "$root"/tests/python/test_torch_*.py "$root"/tests/python/test_{compat*,bench_compare}.py; do
		pytest_slices "$python" "$file"
	done
}

# Where counters are for the administrator alone, ncu says ERR_NVGPUCTRPERM: run it as root.
part_dram() {
	local ncu words=()
	ncu=$(command -v ncu || echo "${CUDA_HOME:-/usr/local/cuda}/bin/ncu")
	if [ ! -x "$ncu" ]; then
		skip "dram: ncu is not there: install Nsight Compute, or set CUDA_HOME"
		return
	fi
	[ "$mode" != short ] || words=(--quick)
	job count dram python3 "$root/tests/dram/count.py" "$build/evenkeel" --ncu "$ncu" --keep "$logs/ncu" "${words[@]}"
	wait
	cat "$logs/count.log"
}

part_bench() {
	local words=()
	[ "$mode" != short ] || words=(--quick)
	job bench bench "$build/evenkeel" bench --device cuda --json "$build/bench-cuda.json" "${words[@]}"
	wait
	cat "$logs/bench.log"
}

# ---- all of it ----

# Tells which GPU, driver and NVRTC it will be.
find_gpu() {
	local info
	if ! info=$("$build/evenkeel" info --device cuda 2>&1); then
		echo "gpu_check: ${info#evenkeel: }" >&2
		exit 3
	fi
	grep -E '^(GPU|driver|NVRTC)' <<<"$info"
}

run_part() {
	begin "$1"
	"part_$1"
	finish "$1"
}

for part in "$@"; do
	case $part in
	-h | --help)
		usage
		exit 0
		;;
	esac
	if ! declare -F "part_$part" >/dev/null; then
		echo "gpu_check: $part: no such part (--help lists them)" >&2
		exit 2
	fi
done
[ $# = 0 ] || parts=("$@")

trap interrupted INT TERM
mkdir -p "$build/kernels" && chmod 700 "$build/kernels" || exit 1
cd "$root" || exit 1
if [ ! -x "$build/evenkeel" ] || [ "${parts[0]}" = build ]; then
	run_part build || exit 1
	[ "${parts[0]}" != build ] || parts=("${parts[@]:1}")
fi
[ ${#parts[@]} = 0 ] || find_gpu
failures=()
for part in "${parts[@]}"; do
	run_part "$part" || failures+=("$part")
done
if [ ${#failures[@]} = 0 ]; then
	echo "gpu_check: all passed, $SECONDS s"
else
	echo "gpu_check: FAILED: ${failures[*]}"
	exit 1
fi
