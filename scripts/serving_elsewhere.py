"""How predictions of loads that other laboratories served came out, batch after batch, and what came of it."""

from __future__ import annotations

import fit_laboratories
import laboratory_runs

from perfmodel.accuracy.run_table import read_run_table

#: what each further batch of runs gave when it came, before anything was changed for it, and what came of it
AT_FIRST_SIGHT = """\
Before anything was changed for them, the batches came out as follows, in their order. A run has one to three figures:
times to the first token and per token, and rates. "Off" is the median; "judged with" is the commit that predicted:

| batch | runs | sources | figures | in the interval | off | judged with |
|---|---|---|---|---|---|---|
| 1 | 957 | - | - | 40 % | - | 27a8f35 |
| 2 | 132 | 35 | 187 | 81 % | - | 9f0b414 |
| 3 | 308 | 43 | 347 | 88 % | 25 % | 4fda8d0a |
| 4 | 209 | 29 | 237 | 93 % | 16 % | 9d5de119 |
| 5 | 133 | 27 | 231 | 81 % | 22 % | cc6b9b3d |
| 6 | 34 | 9 | 54 | 83 % | 27 % | 4c0be53c |
| 7, hybrids | 101 | 18 | 136 | 84 % | 15 % | 05f6a07d |
| 8, sparse attention | 25 | 9 | 43 | 54 % | 66 % | 1a10c592 |
| 9, models that had just become known | 195 | 42 | 273 | 70 % | - | 7c3f89d6, 52a708ea, 8491baa1 |
| 10 | 21 | 6 | 38 | 63 % | 75 % | 4960c1b5 |
| 11 | 99 | 17 | 188 | 70 % | 19 % | 6481b6ba |
| 12 | 72 | 14 | 121 | 79 % | 14 % | 982e291d |
| 13 | 137 | 31 | 226 | 93 % | 19 % | 781e67c0 |
| 2 to 13 | | | 2,081 | 81 % | | |

What lay outside, and what came of it:

- Batch 2: times per token by users 80 % inside, first tokens 74 %, offline 94 %, arrivals 86 %, static 100 %, but none
  of six single streams. The widening was found again with them; llama.cpp has a profile since.
- Batch 3: by users 90 %, offline 77 %, static 85 %, single streams 88 %, arrivals 96 %, but 46 % of 24 figures of
  engines that have no profile, whose interval was narrower than that of engines which have one. These are a kind of
  their own since, with the widening that their sources ask for.
- Batch 4: static 95 %, single streams 90 %, offline 89 %, all by users, six of nine of arrivals.
- Batch 5: offline 97 %, by users 88 %, single streams 87 %, static 86 %; 72 % of 113 figures of one laboratory's
  arrivals, a thousand conversations at once; 90 % of all others, 15 % off in the median.
- Batch 6: two of the 34 runs were refused then. Since then the first releases with DeepSeek's latent attention (vLLM
  before 0.9, SGLang before 0.4.7, TensorRT-LLM before 0.20) are a kind of their own, with the widening that their
  sources ask for.
- Batch 7 (Qwen3-Next, Qwen3.5, Qwen3.6): no run of such a model had set anything. Steps 90 % inside, 11 % off (static
  and single streams all, offline 83 %, by users 81 %, arrivals 86 %); first tokens 62 %, 63 % off. With them in view,
  SGLang's pool for the states of linear attention limits the sequences that run (offline throughputs 43 to 20 % off);
  the time of chunks, whose states follow one another, was read off published kernels; and runs of hybrids are a kind of
  their own, too, whoever runs them.
- Batch 8 (DeepSeek-V3.2, GLM-5): nothing had been set in view of such models either; one of the 25 runs does not fit.
  Most took longer, as their kernels are the first ones: those of SGLang on an MI355X three to five times as long per
  token, vLLM's throughput on eight H200 1.3 to 2.9 times less. They are a kind of their own since, with an interval
  that says so.
- Batch 9 (Nemotron-H and -3, Granite 4 and other hybrids of Mamba-2, Kimi Linear, LFM2; newer plain types such as
  GLM-4.7-Flash and Ministral 3; Gemma 4 and MiMo-V2-Flash): 70 % of 172 steps and 69 % of 101 first tokens inside;
  hybrids of Mamba-2 71 and 64 %, Kimi and LFM2 56 and 75 %, the plain types 69 and 70 %, layers with windows 94 and
  82 %. A third of the hybrids' first tokens take four times as long as predicted and more, and hybrids have a widening
  of their own for these since. Read off these rows are the kernels that LLM.int8() adds to a layer of transformers (7
  pairs), the launch of a kernel of DeepSpeed-Inference (10 times per token), and the host's time of vLLM before 0.8 (17
  figures); the files in `engine_specs/serving` name them.
- Batch 10: 9 of 16 figures of DeepSeek-V4 on MI300X inside, four times as slow as predicted and more; 15 of the other
  22. Since then SGLang runs 256 sequences of DeepSeek-V4 at most, as its log says. And users in step: benchmarks of
  vLLM and SGLang start all users at once, and where prompts and answers have one length these stay in step, in the
  simulation, too. Of tables of other laboratories with such lengths half of a wave's prompts are read together: first
  tokens of 48 sources were 2.9 times too early or too late in the mean (of ratios) and are 2.0 times.
- Batch 11: times per token by users 80 %, first tokens 69 %, static 93 %, offline all; arrivals 67 % of 24 rates, 70 %
  of 23 times per token, 33 % of 24 first tokens. Three of the first tokens turned out to be cached prompts and were
  taken out; 12 others are of one server of unknown release, which takes 0.3 ms of a step for each sequence that it
  streams. With these and the earlier runs in view bursts and random arrivals are apart: of releases measured 91 % of
  the rates and times per token of random arrivals were inside, and 79 % of the first tokens, with what other loads ask
  for; of those of bursts 66 and 56 %, most of them one laboratory's, whose H100 take 1.4 to 1.6 times as long as
  predicted with each engine, and whose A100 do not.
- Batch 12: times per token 88 %, 9 % off; rates 84 %, 9 % off; first tokens 63 %, 44 % off; by users 87 % of the times
  per token and 56 % of the first tokens, random arrivals 100 and 67 %, at once 75 and 100 %, rates of batches 75 %. Of
  all first tokens by users, with intervals that count laboratories, 64 % were inside until then. With these runs in
  view, too, first tokens of several users, whose prompts meet as their client lets them, have an interval of their own;
  tables tell the limits of a server where its source does (`max_num_seqs`, `max_num_batched_tokens`, `max_model_len`);
  and vLLM before 0.8 reads prompts of models of more than 32K tokens of context in chunks on CUDA, as its arguments say
  (Llama-3.1-405B on H100: times per token 56 to 9 % off).
- Batch 13: times per token by users 88 %, 12 % off; first tokens by users 99 %, 37 % off, in an interval of their own
  of 6.6; batches and single streams 97 %, random arrivals and bursts 81 %; 94 % in the mean of the sources. Eight times
  per token of DeepSeek-R1 on H20, by SGLang of March 2025, are 0.23 to 0.35 times the measured ones.

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
