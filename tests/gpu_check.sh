#!/usr/bin/env bash
# Everything that is to be checked on a machine with a GPU, in parts of under eight minutes. SPDX-License-Identifier: MIT
# shellcheck disable=SC2317 # the parts are called by name
set -u
shopt -s nullglob
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
	cat <<'END'
usage: tests/gpu_check.sh [PART …]        (no PART: all but bench)

Checks evenkeel on this machine's GPU. Each part takes under eight minutes, can be run alone, and ends with a
line `PART: N passed, N failed, N skipped`. The exit status is 0 if nothing failed.

  build      configures and builds with CMake; the other parts do it, too, where it was not done
  bits       evenkeel verify --quick: the edge shapes in all operand forms, against the CPU reference
  full       evenkeel verify --full: also the large shapes
  widths     evenkeel verify on 128 widths and enough rows for slots of several chunks
  tests      the C tests that can test a GPU: bits, sample, gradients, accuracy, guard, in short
  golden     the golden digests
  sanitize   compute-sanitizer: memcheck, racecheck, initcheck, synccheck (skipped where it is missing)
  graphs     graphs, many threads and streams at once, the host's cost of a call
  large      tensors of over 2^31 elements and of over 2^31 rows (up to 60 GB of GPU memory)
  bench      evenkeel bench, into $BUILD/bench-cuda.json; nothing else should run on the GPU

  tests/gpu_check.sh bits golden             two parts
  CUDA_VISIBLE_DEVICES=1 tests/gpu_check.sh  another GPU
  JOBS=4 BUILD=build tests/gpu_check.sh bits

BUILD   the build folder (build-gpu); compiled kernels are kept in it, so that a second run is faster
JOBS    processes at once (the number of cores): each compiles its kernels in one thread
LIMIT   seconds that a part may take (460)
MODE    short: graphs and large with small tensors, for a trial
END
}

build=${BUILD:-build-gpu}
[[ $build = /* ]] || build=$root/$build
limit=${LIMIT:-460}
mode=${MODE:-default}
most_jobs=${JOBS:-$(nproc)}
parts=(build bits full widths tests golden sanitize graphs large)

# ---- commands of a part: several at once, each into a log of its own ----

begin() {
	logs=$build/gpu-logs/$1
	rm -rf "$logs"
	mkdir -p "$logs"
}

# job NAME COMMAND …
job() {
	local name=$1
	shift
	while (($(jobs -rp | wc -l) >= most_jobs)); do
		wait -n
	done
	(
		left=$((limit - (SECONDS - started)))
		timeout $((left > 1 ? left : 1)) "$@" >"$logs/$name.log" 2>&1
		echo $? >"$logs/$name.status"
	) &
}

# Waits for the jobs, shows those that failed, prints the part's line; false if any failed.
finish() {
	local part=$1 passed=0 failed=0 file name status
	wait
	for file in "$logs"/*.status; do
		name=$(basename "$file" .status)
		status=$(<"$file")
		skipped=$((skipped + $(grep -c '^skipped' "$logs/$name.log")))
		if [ "$status" = 0 ]; then
			passed=$((passed + 1))
			continue
		fi
		failed=$((failed + 1))
		echo "FAILED $part $name (status $status; the whole log: $logs/$name.log)"
		[ "$status" != 124 ] || echo "    | not done within $limit s: again (what was compiled is kept), or LIMIT=900"
		tail -n 12 "$logs/$name.log" | sed 's/^/    | /'
	done
	cat /dev/null "$logs"/*.log | grep -E '^skipped|^  host:' | sed 's/^/    /'
	echo "$part: $passed passed, $failed failed, $skipped skipped, $((SECONDS - started)) s"
	[ "$failed" = 0 ]
}

skip() {
	echo "skipped $*"
	skipped=$((skipped + 1))
}

# ---- the parts ----

part_build() {
	local generator=()
	[ -f "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || generator=(-G Ninja)
	job configure cmake -S "$root" -B "$build" "${generator[@]}" -DEVENKEEL_BUILD_EXAMPLES=OFF
	wait
	job compile cmake --build "$build" -j "$most_jobs"
}

# verify NAME ARGUMENT …: by op, pass and dtype, so that many kernels are compiled at once.
verify() {
	local name=$1 op pass dtype
	shift
	for op in layer_norm rms_norm; do
		for pass in backward forward; do
			for dtype in bf16 f16 f32 f64; do
				job "$name-$op-$pass-$dtype" "$build/evenkeel" verify "$op" --device cuda --pass "$pass" \
					--dtype "$dtype" "$@"
			done
		done
	done
}

part_bits() {
	verify quick --quick
}

part_full() {
	verify full --full
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
	# shellcheck disable=SC2046
	verify narrow --shapes "$(shapes $(seq 1 40) 47 48 49 63 64 65 95 96 97 127 128 129 191 192 193 255 256 257 319 \
		383 384 385 447 448)"
	verify wide --shapes "$(shapes 511 512 513 575 576 640 641 767 768 769 895 896 1000 1023 1024 1025 1151 1280 1500 \
		1535 1536 1537 1600 1792 2000 2047 2048 2049 2500 2560 3000 3071 3072 3073 3333 4000 4095 4096 4097 \
		5000 5119 5120 5121 6000 6144 6145 7168 7169 8191 8192 8193 9000 10240 12288 12289 16383 16384 16385 20000 \
		32768 32769 65536 65537 131072)"
}

# The names of a test program's tests, from its source.
tests_of() {
	sed -n 's/^\tTEST(\(.*\));/\1/p' "$root/tests/test_$1.c"
}

part_tests() {
	local program name
	for program in bits sample gradients accuracy; do
		for name in $(tests_of "$program"); do
			# Over 200 widths one after another: part widths has them in many processes.
			[ "$name" = all_widths_to_2100 ] ||
				job "$program-$name" env EVENKEEL_TEST_DEVICE=cuda "$build/tests/test_$program" short "$name"
		done
	done
	job guard env EVENKEEL_TEST_DEVICE=cuda "$build/tests/test_guard" short
}

part_golden() {
	job golden env EVENKEEL_TEST_DEVICE=cuda "$build/tests/test_golden"
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

# One warp a row, several, rows in parts, clusters, rows that are read again, column sums of several slots. The
# kernels are compiled first: the compiler is not to be watched.
part_sanitize() {
	local program tool dtype list
	local shapes=3x17,5x300,2x1025,2x5000,70x260
	local -A wide=([f32]=2x40000 [bf16]=2x70000 [f64]=2x20000)
	program=$(sanitizer)
	if [ -z "$program" ]; then
		skip "sanitize: compute-sanitizer is not there: install it with the CUDA toolkit, or set CUDA_HOME"
		return
	fi
	for dtype in bf16 f32 f64; do
		list=(--device cuda --dtype "$dtype" --shapes "$shapes,${wide[$dtype]}")
		job "compile-$dtype" "$build/evenkeel" verify layer_norm "${list[@]}"
	done
	wait
	for tool in racecheck memcheck initcheck synccheck; do
		for dtype in bf16 f32 f64; do
			list=(--device cuda --dtype "$dtype" --shapes "$shapes,${wide[$dtype]}")
			job "$tool-$dtype" "$program" --tool "$tool" --error-exitcode 9 --report-api-errors no \
				"$build/evenkeel" verify layer_norm "${list[@]}"
		done
	done
}

part_graphs() {
	local name
	for name in replay_equals_a_plain_call capture_after_prepare many_threads_and_streams_at_once; do
		job "$name" "$build/tests/gpu_extra" "$mode" "$name"
	done
	wait # the next is a measurement
	job host_cost "$build/tests/gpu_extra" "$mode" host_cost_of_a_warm_call
}

# One after another: each fills a good part of the memory.
part_large() {
	local name
	for name in more_than_2_31_elements_forward more_than_2_31_elements_backward column_sums_over_2_31_elements \
		more_than_2_31_rows; do
		job "$name" "$build/tests/gpu_extra" "$mode" "$name"
		wait
	done
}

part_bench() {
	job bench "$build/evenkeel" bench --device cuda --json "$build/bench-cuda.json"
	wait
	cat "$logs/bench.log"
}

# ---- all of it ----

run_part() {
	started=$SECONDS skipped=0
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

mkdir -p "$build/kernels" && chmod 700 "$build/kernels" || exit 1
export EVENKEEL_CACHE=$build/kernels
cd "$root" || exit 1
status=0
if [ ! -x "$build/evenkeel" ] && [ "${parts[0]}" != build ]; then
	run_part build || exit 1
fi
for part in "${parts[@]}"; do
	run_part "$part" || status=1
	[ "$part" != build ] || [ $status = 0 ] || exit 1
done
exit $status
