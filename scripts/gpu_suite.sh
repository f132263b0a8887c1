#!/usr/bin/env bash
# Everything that needs a GPU, in one run that ends within 10 minutes: the GPU tests, the full benchmark, operators and
# models drawn at random, a calibration, the model against the fresh records, and the kernel targets; one table at the end.
# Usage, from the checkout: OUT=folder scripts/gpu_suite.sh [--dry-run]
# PYTHON names the interpreter that has torch with CUDA, SEED the draw (by default the date). Records and logs go to OUT.
# A step that takes too long is interrupted; a benchmark keeps the rows that it has. --dry-run prints the commands, one a
# line, and runs none.
set -uo pipefail
cd "$(dirname "$0")/.."
case "$*" in
    "") run=yes ;;
    --dry-run) run=no ;;
    *)
        printf 'usage: %s [--dry-run]\n' "$0" >&2
        exit 2
        ;;
esac
out=${OUT:-out/gpu}
python=${PYTHON:-python3}
seed=${SEED:-$(date +%Y%m%d)}
total=590
failed=0
if [ "$run" = yes ]; then
    mkdir -p "$out"
    : > "$out/log.txt"
    : > "$out/steps.tsv"
    rm -f "$out/bench.json" "$out/drawn.json" "$out/compiled.json" "$out/events.json" "$out/calibrated.toml" "$out/fitted.toml"
fi

# step NAME SECONDS COMMAND...: runs a command for so many seconds at most, and no longer than the suite has left.
step() {
    local name=$1 limit=$2 begin=$SECONDS result=ok left=$((total - SECONDS))
    shift 2
    if [ "$run" = no ]; then
        echo "$*"
        return
    fi
    [ "$limit" -gt "$left" ] && limit=$left
    printf '\n== %s: %s\n' "$name" "$*" | tee -a "$out/log.txt"
    if [ "$limit" -lt 5 ]; then
        result="no time left"
    else
        timeout --signal=INT --kill-after=10 "$limit" "$@" 2>&1 | tee -a "$out/log.txt"
        local code=${PIPESTATUS[0]}
        case $code in
            0) ;;
            124 | 130) result="cut short at $limit s" ;;
            *) result="exit $code" ;;
        esac
    fi
    [ "$result" = ok ] || failed=$((failed + 1))
    printf '%s\t%s\t%s\n' "$name" $((SECONDS - begin)) "$result" >> "$out/steps.tsv"
}

perfmodel=("$python" -m perfmodel)
step "GPU" 10 nvidia-smi --format=csv \
    --query-gpu=name,driver_version,clocks.max.sm,clocks.sm,power.limit,temperature.gpu,ecc.mode.current,mig.mode.current
step "detect" 20 "${perfmodel[@]}" hardware detect
step "bench --preset full" 230 "${perfmodel[@]}" bench --device cuda --preset full -o "$out/bench.json"
step "GPU tests" 100 "$python" -m pytest -p no:cacheprovider --durations=15 -m gpu tests/gpu
step "draw" 10 "$python" scripts/draw_shapes.py "$seed" -o "$out/operators.json"
step "bench drawn" 120 "${perfmodel[@]}" bench "$out/operators.json" --device cuda --kernel "torch.*" --kernel "F.*" \
    --time-limit 0.1 -o "$out/drawn.json"
step "models drawn" 40 "$python" scripts/record_models.py "$out/drawn.jsonl" --seed "$seed"
step "calibrate" 40 "${perfmodel[@]}" calibrate --device cuda -o "$out/calibrated.toml"
step "torch.compile" 40 "${perfmodel[@]}" bench --device cuda --kernel "compiled*" --time-limit 0.3 -o "$out/compiled.json" \
    elementwise kind=chain4 numel=134217728 dtype=bf16 layer_norm rows=32768 cols=8192 dtype=bf16 \
    rms_norm rows=32768 cols=8192 dtype=bf16
step "events" 20 "${perfmodel[@]}" bench --device cuda --timing do-bench --time-limit 0.3 -o "$out/events.json" \
    elementwise kind=relu numel=1024/65536/1048576 dtype=bf16 rms_norm rows=8/1024 cols=1024 dtype=bf16
step "validate" 20 "${perfmodel[@]}" validate "$out/bench.json"
step "validate drawn" 20 "${perfmodel[@]}" validate "$out/drawn.json" --worst 20
step "fit" 60 "${perfmodel[@]}" calibrate --from "$out/bench.json" --on "$out/calibrated.toml" -o "$out/fitted.toml"
step "plot" 30 "${perfmodel[@]}" plot "$out/bench.json" -o "$out/bench.png"

targets=("$python" scripts/kernel_targets.py "$out/bench.json" --steps "$out/steps.tsv")
if [ "$run" = no ]; then
    echo "${targets[*]}"
    exit 0
fi
printf '\n'
"${targets[@]}" | tee "$out/targets.txt"
missed=${PIPESTATUS[0]}
printf '\n%s step(s) failed; results in %s, after %s s\n' "$failed" "$out" "$SECONDS"
exit "$((failed > 0 || missed > 0))"
