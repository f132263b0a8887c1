"""The texts of docs/accuracy.md and accuracy_tables.md; `accuracy.pages` fills in what stands in braces."""

TEXT = """# Accuracy of the latency model

`make accuracy` wrote this page on {date}, from public measurements made outside this project:

- sitar-lab/NeuSight @ 6945927d9afc (MIT; `neusight_*`): fp32, events around a PyTorch 2.1 call;
- ai-dynamo/aiconfigurator @ 095f58a51c4c (Apache-2.0; `aic_*`): kernels inside SGLang, TensorRT-LLM and vLLM, replayed
  from CUDA graphs; layers of mixtures of experts; collectives in queues;
- microsoft/vidur @ 7d47513363ec (MIT; `vidur_*`): fp16 kernels of vLLM's layers;
- casys-kaist/LLMServingSim @ 5daddb21a545 (MIT; `llmservingsim_*`): bf16 kernels of vLLM's layers on an RTX 4090;

and from our own records on an H100 (`examples/records`; `h100-*`), PyTorch 2.11 and Triton 3.6.

The error of a row is predicted / measured - 1; the mean is the mean of its absolute value. Each row is predicted in its
own view of time, cache state and library. The width of an interval is its high end over its low end; widths are
medians. `perfmodel validate TABLE` judges each table again.

## Off the data

What a user of another machine or library gets. Each machine, or library, is left out of everything: of the constants,
of the deviations between machines and libraries, and of the spread over shapes (`scripts/nested.py`). All rows judged
here have shapes that were not fitted, too.

{machines}

{libraries}

All rows of one table share one draw of what its machine or library differs by, so that a table lies inside its
intervals as a whole, or outside; an honest interval reaches 80 % in the mean over tables, not in each of them.

## Summary

A hash of the sizes puts half of all shapes aside; these rows have not been fitted. "Calibrated" uses the constants that
ship in `hardware_specs/`, fitted on the other half. "Machine left out" and "library left out" are as above. "Datasheet
roofline" is the error of the bound taken as a prediction.

The constants have not seen these rows, but the people who chose the formulas have. Rows and machines that nobody here
has looked at may come out somewhat worse.

{summary}

## Stated and observed

The share of the rows that lies inside intervals of three levels. The half widths are those of the 80 % interval, on a
logarithmic scale, times the ratio of the normal distribution's quantiles.

![Share of rows inside the interval by its stated level](coverage.png)

{levels}

## Whole models

Inference in fp32, eager PyTorch, TF32 off. The prediction is the sum of the predicted kernels and a gap of 2 us after
each of them; the measurement is the forward pass (`scripts/whole_models.py`). No row of these was fitted, but the
deviation of a whole run from its operators comes from them (`RUN_DEVIATION`; for P4,
whose clock differed between sessions, `run_deviation` in its specification). No constant at all is fitted on MI250, of
which one of the two devices ran.

{models}

Training steps in fp32 on AMD's machines, of which no published table of steps has a run (`scripts/whole_steps.py`).
Both runs of GPT2-Large are slow in their forward pass, which took three times as long as the same pass in inference,
for a reason that the table does not tell.

{steps}

## Another laboratory

Liger-Kernel (linkedin/Liger-Kernel @ ead96b618e5c) publishes the times of its fused kernels, and of the modules of
PyTorch and transformers that they replace, which many people measured on A100, H100 and RTX 3090
(`scripts/other_laboratories.py`). No constant is fitted on a row of these, and which release of PyTorch ran is taken
from the date. Modules are the sum of their kernels.

{laboratory}

At first sight PyTorch's rows were 11.8 % off, with 73 % in the interval, and Liger-Kernel's 18.9 % with 100 %. After
it, and with these rows in view, factors that are broadcast and heads that are transposed got the kernels that compute
the address of each element, as whole models have them, and Liger-Kernel's norms and softmax those that read a row
once. Not modelled: until March 2025 one block of 32 threads picked the targets of PyTorch's cross entropy
(pytorch/pytorch pull request 149548), about 0.5 ms for 16,384 rows.

Kernels of whole runs, as others traced them, are harder: clocks, caches and what runs beside them differ from kernels
measured alone. Each operator with its shapes counts once, as `perfmodel diagnose` predicts it, and the last three runs
are op graphs of NeuSight, whose products take 1.5 times as long as in NeuSight's own tables
(`scripts/other_laboratories_traces.py`). No constant is fitted on these but the cycles of computed addresses, which 15
of them gave. Their intervals are not blind: what a kernel in a run differs by, and the deviations of strided kernels,
fills, filters and vendors, were chosen with these rows in view. At first sight half of those that had a prediction were
inside (51 %, 25.7 % off). An MI300X, whose vendor has no measured machine in 16 bits, was 42 % off with 59 % inside,
until its kernels began no faster than its queue lets them: a copy of a few KiB takes 4.4 us there, of which 3.4 are its
dispatch, which the trace counts to the kernel or shows as a pause before it (`[launch]` of its specification).

{traces}

## Published kernels

Times that other sources published (`examples/published`), on machines and libraries most of which no table above has.
No table of constants is fitted on them. From the second batch on, readers who had seen no prediction gathered each,
once what the batches before it had shown was mended. "At first sight" is the state that had seen no row of the batch;
rows that are flagged are left out of it, and of today's figures, which were chosen with the rows in view.
[Published kernels](accuracy_published.md) has each batch by kernel and machine, what was changed for it, and what it
shows that nothing models.

{batches}

## Our own measurements

`examples/records` holds what `perfmodel bench` measured on an H100 and an H200 with PyTorch 2.11 and our own Triton
kernels, of which no table above has a row. Half of the shapes of the H100 are fitted, and stand among the tables below;
no constant is fitted on the H200. `stream` and the families that start with `eager` are PyTorch's sorts, look-ups,
poolings, norms of images, conversions and gradients.

Operators drawn at random (`scripts/draw_shapes.py`: all dtypes, attention of few queries and odd heads, grouped
convolutions, gradients, sizes that are no multiple of anything) judge each state of the model once. "MAPE" to "width"
are of the predictions that each record has, made before anybody had looked at its rows; since then formulas were mended
with the rows in view, which flatters the figures of today. The first draw had usual sizes and fewer operators.

{draws}

Calls of the same draws that run several kernels one after another, against the sum of these kernels. They are not among
the rows above:

{compositions}

The last of them today, by family:

{blind}

Each of the last two after `calibrate --from` the other, which is what rows of your own tell of shapes that they do not
have. Constants that the rows do not better stay; the interval is that of the rows:

{calibrated}

Pairs of neighbours across the largest steps of the model, which say whether these are real (measured together with the
second draw; 23.7 % off then, with 73.1 % in the interval):

{neighbours}

The shapes of these were chosen without looking at a prediction, but formulas were changed after a look at the rows.

{own}

## By family and machine

[Accuracy by family and machine](accuracy_tables.md) has the rows that were fitted and that were not, by family and
machine, regime, dtype and library, and each machine and each library left out.

## Noise floor

Two libraries differ on the same shape, machine and dtype by this much: mean and median of |first / second - 1|, and the
median of first / second - 1. A formula that does not know the library cannot do much better than half of it.

{noise}

Convolutions have a floor of another kind. On short shapes, what a call takes beyond its kernel is alike on all four
machines (rank correlation 0.98), spread between 0.05 ms and 0.3 ms (V100) to 0.8 ms (P100, P4), and no function of the
sizes: rank correlations with n, c, h and k are at most 0.22, and boosted trees that see the sizes and their remainders
explain less than nothing of it on shapes that they were not fitted on. It grows along the table, as a dispatch would in
the course of a run. Kernels whose times were known exactly would be off by 16.9 % on P100, 11.8 % on P4, 8.9 % on T4
and 11.0 % on V100, 12.1 % in the mean, with the best single dispatch of each machine, and by 11.9 % with one that grows
with the kernel, as an even spread lets it (over 618 dispatches of fitted shapes, known within 6 % of their range,
2026-11-29). Trees that see the sizes, their remainders and the times of all algorithms bring the fitted half, with
constants fitted without those dispatches, from 13.8 to 13.3 % on shapes that they were not fitted on.

## What is left out, and why

This page leaves out rows that their author flagged as faster than device memory; rows that are faster than physics
allows, by more than a clock can boost; rows in number formats that perfmodel does not have; rows whose size contradicts
itself; and rows that do not measure what their columns say. `perfmodel validate` leaves out only rows that are flagged
or cannot be read.

With and without the rows that do not measure what their columns say, on shapes that were not fitted:

{tables}

Each rule, and its rows:

{excluded}
"""

TABLES = """# Accuracy by family and machine

`make accuracy` wrote this page on {date}, from the tables that [Accuracy](accuracy.md) names, where the columns are
explained, too.

## Rows that were not fitted, by family and machine

{unseen}

By regime: "launch" where starting the kernel, or the host, takes over half of the predicted time; otherwise "mid" below
0.1 ms and "large" above.

{regimes}

By dtype and library:

{dtypes}

## Rows that were fitted

The same figures on the fitting half. They hardly differ from those above: the constants are too few to learn rows by
heart.

{fitted}

## Each machine left out

{never}

## Each library left out

On machines that have rows of another library, too.

{foreign}
"""
