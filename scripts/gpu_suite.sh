#!/usr/bin/env bash
# Everything that needs a GPU, in one run: correctness, then a calibration, the full benchmark and its plot.
# Usage, from the checkout: OUT=folder scripts/gpu_suite.sh   (PYTHON names the interpreter that has torch with CUDA)
set -uo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-out/gpu}
python=${PYTHON:-python3}
mkdir -p "$out"
failed=0

step() {
    printf '\n== %s\n' "$*"
    timeout "${LIMIT:-300}" "$@" 2>&1 | tee -a "$out/log.txt" || { failed=$((failed + 1)); echo "FAILED: $*"; }
}

: > "$out/log.txt"
step nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit,ecc.mode.current,mig.mode.current --format=csv
step "$python" -m perfmodel hardware detect
step "$python" -m pytest -p no:cacheprovider -m gpu tests/gpu
step "$python" -m perfmodel calibrate --device cuda -o "$out/calibrated.toml"
step "$python" -m perfmodel bench --device cuda --preset full --time-limit 1 -o "$out/bench.json" --plot "$out/bench.png"
step "$python" -m perfmodel show "$out/bench.json"
printf '\n%s step(s) failed; results in %s\n' "$failed" "$out"
exit "$((failed > 0))"
