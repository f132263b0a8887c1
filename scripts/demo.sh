#!/bin/sh
# The main job from end to end, on this machine. Usage: demo.sh FOLDER, run from the checkout.
set -eu
out=${1:-out}
mkdir -p "$out"

say() { printf '\n== %s\n$ %s\n' "$1" "$2"; }

say "Which machines perfmodel knows" "perfmodel hardware list"
perfmodel hardware list

say "The bound and the time to expect, without running anything" \
    "perfmodel analyze examples/transformer_block.toml --on a100-sxm4-80gb --on h100-sxm5-80gb --plot $out/transformer_block.png"
perfmodel analyze examples/transformer_block.toml --on a100-sxm4-80gb --on h100-sxm5-80gb --plot "$out/transformer_block.png"

say "Reference kernels on this machine, against the model" \
    "perfmodel bench --preset quick -o $out/bench.json --overwrite --plot $out/bench.png"
perfmodel bench --preset quick -o "$out/bench.json" --overwrite --plot "$out/bench.png"
perfmodel show "$out/bench.json"

say "What is worth optimising first" \
    "perfmodel roi examples/profile_gpt2.csv --plan examples/plan_gpt2.toml"
perfmodel roi examples/profile_gpt2.csv --plan examples/plan_gpt2.toml

say "A training step on 64 GPUs" \
    "perfmodel train llama-3.1-70b --on h100 --gpus 64 --tp 8 --pp 4 --batch 128 --output $out/train.html"
perfmodel train llama-3.1-70b --on h100 --gpus 64 --tp 8 --pp 4 --batch 128
perfmodel train llama-3.1-70b --on h100 --gpus 64 --tp 8 --pp 4 --batch 128 --output "$out/train.html"

say "A command watched while it runs" \
    "perfmodel monitor --interval 0.2 --record $out/run.jsonl -- sleep 2"
rm -f "$out/run.jsonl"
perfmodel monitor --interval 0.2 --record "$out/run.jsonl" -- sleep 2

say "What was measured, as one page that opens offline" \
    "perfmodel report $out/bench.json -o $out/report.html"
perfmodel report "$out/bench.json" -o "$out/report.html"

printf '\nThe plots are %s/transformer_block.png and %s/bench.png; open %s/report.html and\n%s/train.html in a browser.\n' "$out" "$out" "$out" "$out"
