"""How predictions of loads that other laboratories served came out, batch after batch, and what came of it."""

from __future__ import annotations

import fit_laboratories
import laboratory_runs

from perfmodel.accuracy.run_table import read_run_table

#: what each further batch of runs gave when it came, before anything was changed for it, and what came of it
AT_FIRST_SIGHT = """\
**132 runs, of 35 sources, were gathered and judged after that (9f0b414): at first sight 81 % of their 187 figures lay
in the interval** (times per token by users 80 %, first tokens 74 %, offline 94 %, arrivals 86 %, static 100 %, but none
of six single streams). The table holds them, too, and the widening was found again with them; llama.cpp has a profile
since. **308 runs, of 43 sources, came after that (4fda8d0a): at first sight 88 % of their 347 figures lay in
the interval, 25 % off in the median** (by users 90 %, offline 77 %, static 85 %, single streams 88 %, arrivals 96 %),
but 46 % of 24 figures of engines that have no profile, whose interval was narrower than that of engines which have one.
These are a kind of their own since, with the widening that their sources ask for, and the widening of all was found
again. **209 more, of 29 sources, came after that (9d5de119): at first sight 93 % of their 237 figures lay in the
interval, 16 % off in the median** (static 95 %, single streams 90 %, offline 89 %, all by users, six of nine of
arrivals). **133 more, of 27 sources, came after that (cc6b9b3d): at first sight 81 % of their 231 figures lay in the
interval, 22 % off in the median** (offline 97 %, by users 88 %, single streams 87 %, static 86 %; 72 % of 113 figures
of one laboratory's arrivals, a thousand conversations at once; 90 % of all others, 15 % off in the median). **34
more, of nine sources, came after that (4c0be53c): of 32 of them, the other two being refused then, 83 % of the 54
figures lay in the interval, 27 % off in the median.** Since then the first releases with DeepSeek's latent attention
(vLLM before 0.9, SGLang before 0.4.7, TensorRT-LLM before 0.20) are a kind of their own, with the widening that their
sources ask for.

**101 runs of hybrids (Qwen3-Next, Qwen3.5, Qwen3.6), of 18 sources, came after that (05f6a07d), when no run of such a
model had set anything: at first sight 84 % of their 136 figures lay in the interval, 15 % off in the median** (steps
90 %, 11 % off: static and single streams all, offline 83 %, by users 81 %, arrivals 86 %; first tokens 62 %, 63 %
off). With them in view, SGLang's pool for the states of linear attention limits the sequences that run (offline
throughputs 43 to 20 % off); the time of chunks, whose states follow one another, was read off published kernels; and
runs of hybrids are a kind of their own, too, whoever runs them.

**25 runs of models with sparse attention (DeepSeek-V3.2, GLM-5), of nine sources, came after that (1a10c592), in view
of which nothing had been set either: at first sight 54 % of the 43 figures of 24 of them lay in the interval, 66 % off
in the median; the other one does not fit.** Most took longer, as their kernels are the first ones: those of SGLang on
an MI355X three to five times as long per token, vLLM's throughput on eight H200 1.3 to 2.9 times less. They are a kind
of their own since, with an interval that says so.

**195 runs, of 42 sources, came after that, of models that had just become known to the catalog and in view of which
nothing had been set: Nemotron-H and -3, Granite 4 and other hybrids of Mamba-2, Kimi Linear, LFM2 (7c3f89d6), newer
plain types such as GLM-4.7-Flash and Ministral 3 (52a708ea), then Gemma 4 and MiMo-V2-Flash (8491baa1). At first
sight 70 % of their 172 steps lay in the interval and 69 % of their 101 first tokens**: hybrids of Mamba-2 71 and 64
%, Kimi and LFM2 56 and 75 %, the plain types 69 and 70 %, layers with windows 94 and 82 %. A third of the hybrids'
first tokens take four times as long as predicted and more, and hybrids have a widening of their own for these since.

Read off these rows, which were all in view, are since: the kernels that LLM.int8() adds to a layer of transformers (7
pairs), the launch of a kernel of DeepSpeed-Inference (10 times per token), and the host's time of vLLM before 0.8 (17
figures); the files in `engine_specs/serving` name them.

**21 runs, of six sources, came after that (4960c1b5): at first sight 63 % of their 38 figures lay in the interval, 75 %
off in the median** (9 of 16 of DeepSeek-V4 on MI300X, four times as slow as predicted and more; 15 of the other 22).
Since then SGLang runs 256 sequences of DeepSeek-V4 at most, as its log says. And users in step: benchmarks of vLLM and
SGLang start all users at once, and where prompts and answers have one length these stay in step, in the simulation,
too. Of tables of other laboratories with such lengths half of a wave's prompts are read together: first tokens of 48
sources were 2.9 times too early or too late in the mean (of ratios) and are 2.0 times.

**99 runs, of 17 sources, came last (32bda135, judged with 6481b6ba): at first sight 70 % of their 188 figures lay in
the interval, 19 % off in the median** (times per token by users 80 %, first tokens 69 %, static 93 %, offline all;
arrivals 67 % of 24 rates, 70 % of 23 times per token, 33 % of 24 first tokens). Three of them turned out to be cached
prompts and were taken out; 12 of the other first tokens are of one server of unknown release, which takes 0.3 ms of a
step for each sequence that it streams. With these and the earlier runs in view bursts and random arrivals are apart: of
releases measured 91 % of the rates and times per token of random arrivals were inside, and 79 % of the first tokens,
with what other loads ask for; of those of bursts 66 and 56 %, most of them one laboratory's, whose H100 take 1.4 to 1.6
times as long as predicted with each engine, and whose A100 do not.

**72 runs, of 14 more sources, came after that (982e291d, before anything predicted them): at first sight 79 % of their
121 figures lay in the interval, 14 % off in the median** (times per token 88 %, 9 % off; rates 84 %, 9 % off; first
tokens 63 %, 44 % off; by users 87 % of the times per token and 56 % of the first tokens, random arrivals 100 and 67 %,
at once 75 and 100 %, rates of batches 75 %); 14 of the 25 figures outside are first tokens. Eleven further rows of that
commit turned out to be in the table already. Of all first tokens by users, with intervals that count laboratories, 64 %
were inside until then.
With these runs in view, too, first tokens of several users, whose prompts meet as their client lets them, have
an interval of their own; tables tell the limits of a server where its source does (`max_num_seqs`,
`max_num_batched_tokens`, `max_model_len`); and vLLM before 0.8 reads prompts of models of more than 32K tokens of
context in chunks on CUDA, as its arguments say (Llama-3.1-405B on H100: times per token 56 to 9 % off).

**137 runs, of 31 sources, came last (c3ba7cbe, judged with 781e67c0): at first sight 93 % of their 226 figures lay in
the interval, 19 % off in the median** (times per token by users 88 %, 12 % off; first tokens by users 99 %, 37 % off,
in an interval of their own of 6.6; batches and single streams 97 %, random arrivals and bursts 81 %; 94 % in the mean
of the sources). Eight times per token of DeepSeek-R1 on H20, by SGLang of March 2025, are 0.23 to 0.35 times the
measured ones. All twelve batches after the first have 2,081 figures, 81 % of which were inside at first sight.

Not mended: some runs of AMD's machines and of releases of 2023 to early 2025 are two to three times as slow as
predicted (vLLM 0.6 on MI300X; AMD's own runs of 0.10 are 17 % off); times to the first token of such servers are up to
ten times as long. Prompts of DeepSeek-V4-Flash on H20 are 2.4 times as fast as predicted, whose experts in 4 bits count
as slow there; nano-vLLM's first tokens come five times as late."""


def _count(column: str) -> int:
    """Return how many machines or engines the runs of other laboratories have."""
    tables = (read_run_table(path) for path in laboratory_runs.TABLES.values())
    return len({run.text(column).lower() for table in tables for run in table.runs})


def page() -> str:
    """Return the section about them: the first batch, the widening that it asked for, and the batches after it."""
    return f"""\
2,420 runs of 358 other sources (`examples/published/serving_*.csv`), gathered by readers who had seen no prediction, on
{_count("hardware")} machines and {_count("engine")} engines, from the releases of 2023 on. **Of the first 957, at first
sight (27a8f35), 37 % of the times per token by users lay in the 80 % interval (33 % off in the mean), 24 % of the
offline throughputs (143 %), 22 % of those of random arrivals (123 %), 44 % of those of static batches (131 %), and 77 %
of one stream's times per token (21 %).**

What came of it: tables may say that lengths are ShareGPT's, which differ widely (the throughput of arrivals came down
to 84 % off, those on H100 PCIe from 2.0 times the measured one to 1.0); vLLM's default limits are those of the machine
(times per token of arrivals from 67 to 41 %); "huggingface" takes the profile of eager transformers (medians of five
sources 6 to 31 % off; before, as an engine without a profile, 74 to 550 %); tables may have the engine's version in a
column of its own, so that old releases take their profile. And intervals count what laboratories differ by, but for
those whose runs set the constants (`scripts/fit_laboratories.py` finds it). Loads whose requests arrive whether or not
others have ended have more of it where they ask for it (`scripts/open_loops.py`): bursts that arrive all at once in
steps, whose slow end lets them queue in the simulation, and in first tokens; random arrivals of older releases and on
AMD's machines in first tokens. "Of a laboratory fitted" is the share inside without all this, "each source left out"
the share inside with what the others differ by, of arrivals and bursts with what other laboratories do:

{fit_laboratories.page()}

{AT_FIRST_SIGHT}"""
