"""The older chapters of docs/accuracy_published.md, which `published_text` puts behind the newer ones."""

EARLIER = """## The tenth batch

The tenth batch, 88 sources and 582 rows, 142 of them flagged, was gathered before that, by two readers who
had seen no prediction. **At first sight (commit 4fda8d0a) it was 25.4 % off, 11.7 % in the median, with 82 % in the
interval at a width of 2.18; the datasheet's roofline is 45 % off. The 175 rows of fourteen machines that no earlier
batch has, from a GTX 1070 to an RX 9070 XT, were 13.1 % off, 7.0 % in the median, with 94 % in the interval at a width
of 2.05.** Products, attention, convolutions and experts were 25.3 % off with 82 % inside; kernels bound by memory,
copies and exchanges 25.7 % with 83 %. Now:

{tenth}

What was changed with these rows in view: cuDNN splits the keys of one query alone (its eight rows of few queries on
an A100 lie in their intervals, before six); kernels of attention that nobody described are less sure of few queries;
products in mxfp8 by a library and on a vendor's machine that nobody measured, and those of few rows by narrow weights
in libraries without a table, say how sure they are (35 and 57 % inside before, 50 and 70 now); MI350X and MI355X have
the figures of AMD's own document.
What they show and nothing models: AITER's grouped mxfp8 products, in one and a half to eight times the time;
convolutions and softmax by Vulkan; one scan by hand and one transpose; all-gathers over Google's network; batch norm in
training on an RTX A6000, in 2.2 times; Marlin's int4 from the L2 of an RTX 4090, in half of the time.

What the rows of a library, a machine, an operator or a vendor have in common in the first nine batches was estimated,
too, as random effects: with each of their 629 sources left out of that, it helps nobody (mean distance of logarithms
0.220 without and 0.217 with it, mean error 21.3 and 23.6 %). What is left differs from source to source, so that no
constant is taken from these rows.

## The ninth batch

The ninth batch, 112 sources and 655 rows, 48 of them flagged, was gathered before that, by two readers who
had seen no prediction. Three quarters of it are of twenty machines that the catalog had not had, from a GTX 1080 Ti to
a GB10 and an MI350X, whose files were written from documents alone and committed before a row was looked at. **At first
sight (commit 98cbeec2) it was 34.5 % off, 17.7 % in the median, with 80 % in the interval at a width of 2.89; the
datasheet's roofline is 51 % off. The 471 rows of the new machines were 28.3 % off, 16.5 % in the median, with 80 % in
the interval at a width of 2.63.** Products, attention, convolutions and experts were 28.1 % off with 83 % inside;
kernels bound by memory, copies and exchanges 43.1 % with 77 %. Now:

{ninth}

What was changed with these rows in view: products of AMD's Composable Kernel in fp8 with scales of blocks wait three
times as long for each step of k on gfx950 (35 rows of seven documents, root mean square of ln 0.58 before and 0.32
now); attention on AMD's Radeon has rates of its own, and its products are less sure; scans, sorts and softmax by
somebody's hand are less sure (30 rows of eleven authors take 2.2 times the predicted time and more). `tlx-2864` became
a call between two events, as its tool measures, and the kernels of an open pull request to PyTorch, `pytorch-194310`,
are no longer called PyTorch's, which were predicted at 3.6 times their time.
What they show and nothing models: exchanges of two RTX 2080 Ti without the bridge that their file has, in eight times
the time (`analyze` says how to leave it out); exchanges over PCIe switches, in a half to a fifth; FlashAttention-2 on
an RTX A5000, in 0.65 of the time; NVFP4 of few rows by CUTLASS on an RTX 5090 and a GB10, in 1.4 to 2.2 times; vLLM's
selection of one long row; TVM's tuned convolutions of small images, in 0.4 to 0.5; streams on an MI300A, in 1.25 times;
torchao's quantisation by groups on an H100, in half of the time; radix sorts of Orochi on an RX 7900 XTX, in two to
eight times.

## The eighth batch

The eighth batch, 94 sources and 502 rows, 37 of them flagged, was gathered before that, by two readers who
had seen no prediction. **At first sight (commit 68feadea) they were 27.7 % off, 20.1 % in the median, with 78 % in the
interval at a width of 2.71; the datasheet's roofline is 56 % off.** Products, attention and experts were 23.6 % off
with 86 % inside; kernels bound by memory, copies and exchanges 33.7 % with 67 %: a quarter of these are short kernels
timed one by one, or cross networks of at most 100 Gb/s a GPU. Now:

{eighth}

What was changed with these rows in view: a single call between two events, as Triton's do_bench times it, takes about
4 us longer than its kernel, which had been predicted alone (375 rows of NVIDIA's machines in all batches, 23 % off as
kernels and 19 now; 17 of kernels below 5 us 62 and 21 %); steps between nodes take longer on networks below 200 Gb/s a
GPU; FlashAttention-1 has a rate of its own (20 rows of five sources, 52 % off before and 20 now), and kernels of
attention that nobody described are less sure; PyTorch's streams elsewhere, too; copies, which had the interval of any
unmeasured kernel, and streams of four bytes and more by other libraries, which had that of 16-bit loads, are surer.
With earlier rows in view, boards whose driver allows a higher clock than that of their printed peaks may beat the
bound: of the second batch 94 % are inside, 91 before.
What they show and nothing models: exchanges over Google's TCPX, whose smallest take 0.6 to 1.1 ms; products in fp8 by
PyTorch of few rows on a B200, in 1.4 to 2.2 times; softmax by hand or in Triton on long rows, in 1.6 to 3.5 times;
sorts of 8-bit keys.
Later, with the rows of all batches in view, NVBench's cold times, which had been predicted as kernels, became calls
between two events as well: 132 rows of 25 sources were 31 % off with 83 % inside, and are 21 % off with 93 %.

## The seventh batch

The seventh batch, 117 sources and 552 rows, 81 of them flagged, was gathered before that, by two readers
who had seen no prediction. **At first sight (commit d347f902) they were 22.4 % off, 14.8 % in the median, with 80 % in
the interval at a width of 2.25; the datasheet's roofline is 47 % off.** Products and attention were 25.4 % off with
70 % inside, kernels bound by memory, copies and exchanges 19.5 % with 88 %. Now:

{seventh}

What was changed with these rows in view: products of kernels that no table has, hand-written ones, compilers' and other
libraries' (26 pairs of source and machine of all batches), and of the vendor's library outside PyTorch (42 pairs), say
how sure they are, where the interval had been that of libraries which all call the vendor's; quantising alone, and
PyTorch in releases that nobody measured, too; a GB200's GPU has half of its CPU's link. What exchanges between nodes
gained was chosen on earlier batches (below).
What they show and nothing models: products in bf16 on a B200, in 1.6 to 2.1 times the time (two sources of one
laboratory, whose boards may be capped); the gradients of the memory-efficient kernel of 2022, in
1.3 to 2.1 times, with heads of 40 columns in ten to thirteen; cuBLAS of 2019 on a T4, in 2.3 to 3.3 times; grouped
products; SGLang's Triton kernel for scales of blocks, in four times; paged attention of vLLM's first two kernels, in
1.7 times.

## The sixth batch

The sixth batch, 89 sources and 554 rows, 25 of them flagged, was gathered before that, by two readers who had seen no
prediction. **At first sight (commit 69d6dfb9) they were 31.2 % off, 21.5 % in the median, with 79 % in the
interval at a width of 3.22; the datasheet's roofline is 62 % off.** The products, experts and convolutions among them
were 25.4 % off with 88 % inside, attention, kernels bound by memory and exchanges 39.0 % with 66 %. Now:

{sixth}

What was changed with these rows in view: scans by look-back take 0.52 clocks an element, whatever its bytes (they had
been predicted at a third to a sixth of their time); the same product again reads L2 at the rate of L2, not only a
little faster than memory, where no other layer runs in between (50 rows of five sources, of this batch and earlier
ones, on L40S, RTX 4090, 5090 and PRO 6000: they took 0.64 times the prediction in the median, now 0.80); xFormers'
kernel of 2022 is PyTorch's memory-efficient one, whose constants, of Hopper, are 10 % off on an A100; and four unknowns
have a width: what installations of PyTorch differ by in products (31 sources of all batches lay inside in 69 % of the
rows), norms and softmax (nine, in 61 %), networks between nodes, norms where an SM has more bytes a clock than on any
measured machine, and a doubt about a call that a table tells apart adds to that call's own interval.
What they show and nothing models: CUB's look-ahead scan, in 0.4 of the time; PyTorch's RMSNorm on an RTX 5090 and a
B200, in 0.6 of the time, and its LayerNorm on an A100 and a B200, in 1.5 times; hipBLASLt's and AITER's products of 192
to 512 rows on an MI355X, in twice the time; softmax of one row that several blocks share.

## The fifth batch

The fifth batch, 38 sources and 296 rows, 12 of them flagged, was gathered before that, by two readers who had seen no
prediction. **At first sight (commit 80faf614) they were 38.2 % off, 21.4 % in the median, with 73 % in the
interval at a width of 2.09; the datasheet's roofline is 60 % off.** Four had no prediction. Now:

{fifth}

What was changed with these rows in view: products with a vector in fp32 stream their matrix (two rows, which had been
predicted at three times their time), and say that nobody measured them; products of tensor cores whose operands pass
through registers take a tenth longer (V100); a radix sort ranks its keys; few rows of softmax in PyTorch before 2.7
wait as long as one, and longer ones than measured are less sure; one query by cuDNN on mma.sync takes TensorRT-LLM's
constants; FlashAttention-4 runs from Ampere on; cards that bridges join share the host's bandwidth as one; the same
call again where a large L2 keeps the weights is less sure.
What they show and nothing models: batched products in fp32 by cuBLAS on an RTX 5090, at half of their rate; products in
fp8 of AITER above 256 rows, and of FlashInfer on a GB200, two to five times as long; sorts of few keys, and of values
of 8 bits; NCCL between V100s over PCIe, in half of the time, inside its interval.

## The fourth batch

The fourth batch, 27 sources and 256 rows, was gathered before that, by a reader who had seen no prediction.
**At first sight (commit 689beae) they were 22.6 % off, 9.9 % in the median, with 75 % in the interval at a width of
1.96; the datasheet's roofline is 37.5 % off.** Now:

{fourth}

What was changed with these rows in view: products of attention in Triton, and in PyTorch on ROCm, which is Triton's,
reach 0.3 of the peak on AMD's matrix cores, read off 15 rows on an MI300X, which had been predicted at 0.38 of their
time; an attention of torch.compile in an open trace of that machine, which set nothing, comes from 66 to 7 % off. Long
rows are slow on a P100 in linear layers alone, of which the fitted table has them, not in the squares of two sources.
Products in Triton are less sure. What they show and nothing models: products on a P100 that add up in fp16; gradients
of norms on an MI300X, which take two to four times as long.

## The third batch

The third batch, 29 sources and 238 rows, was gathered before that in the same way.
**At first sight (commit 825c132) they were 28.5 % off, 22.3 % in the median, with 62 % in the interval at a width of
2.32; the datasheet's roofline is 54 % off.** Now, with the 26 rows of five sources of which some lie between nodes and
could not be predicted then:

{third}

What was changed with these rows in view: kernels that widen 4-bit weights use mma.sync on Blackwell, and Marlin's on
Hopper (eight rows, which had been predicted at a third of their time, are 26 % off); heads of more than 256 columns and
other kernels that a machine or PyTorch does not have are priced as what runs there; and two unknowns have a width:
products whose weights stay in a large L2 from call to call, and 4-bit products of libraries without rows, CUTLASS's
among them, whose steps along k take up to twice as long.

What they show and nothing models: hipBLASLt's products of up to 512 rows on an MI355X, which take two to four times as
long; bf16 products by cuBLAS on an RTX 5090, uneven from size to size; layers of many experts by an untuned Triton
kernel; a norm of 2048 columns on an MI100, twice as slow as in the tables.

## The second batch

The second batch, 71 sources and 922 rows, was gathered by readers who had seen no prediction. **At first sight
(commit 8dc31a2) they were 26.5 % off, 11.5 % in the median, with 78 % in the interval at a width of 1.96; the
datasheet's roofline is 43 % off.** Two labels were set right after the first look: calls of Triton's do_bench hold no
dispatch, since the device flushes its caches meanwhile, and FlashInfer calls TensorRT-LLM's newer kernels on a B200.
Now:

{second}

What was changed with these rows in view: small exchanges over a full mesh wait once and not in a ring (seen in the
first batch, confirmed by MI355X); FlashInfer's decode has tiles of 16 rows, and widens 8-bit keys in software (16
elements a clock and SM, read off two rows of an H20; it had been predicted at 3.5 times its time); products of 16
bits on a P100 add up in fp32; NCCL through the host is that of any host, of which two were measured and differ
tenfold, and no longer of the slower one (eight RTX 4090 exchange ten times as fast); and three unknowns have a name
and a width: `power`, `installation` (their deviation is that of twelve of these sources), and `link` of bridges and of
switches that were not fitted.

What they show and nothing models: large fp32 products on P100, which take half of the time that those of the fitted
table took; GeForce boards whose clock is 15 to 20 % above the listed one, so that they beat their bound; products in
fp16 that take 5 to 8 % longer than those in bf16 where power is short; cross entropy by Liger, which takes 1.6 to 2.5
times as long; all-reduces in switches of Blackwell, 8 to 47 % slower than predicted; NCCL's symmetric memory, which
halves small gathers.

## The first batch

Rows of the first batch whose inputs are all alike take less power than real ones, so that the clock rises above the
listed one: they stand apart.

{published}

At first sight the others of the first batch were 33.7 % off, with 60 % in the interval at a width of 1.68. After it,
and with these rows in view, the engine of an H20 is fed in time (its vendor leaves a quarter of the rate that the
rest of the SM is built for), up to what mma.sync takes, and FlashAttention-4 hides more of its exponentials on
Blackwell; two figures of that kernel, and the most that a limited engine reaches, are read off these rows. The power
law, with what sustained load costs, had seen none of AMD's figures until the energy of AMD's matrix cores was read off
its six products; they had been 8 % off.

What they show and nothing models: all-reduces over the bridge of two H100 PCIe take 1.9 times the predicted time, and
over the 72 GPUs of an NVL72 1.4 to 1.7 times; the largest products on B200, GB200 and B300, the best of a search, are
up to 18 % faster than predicted; products of at most 128 rows whose weights lie in the L2 of an H100 take two thirds
of it.

## Exchanges between nodes

Exchanges between nodes, 20 rows of the third batch, 12 of the fifth, 34 of the sixth, 50 of the seventh, 53 of the
eighth, 26 of the ninth, 39 of the tenth, 77 of the eleventh, 13 of the twelfth, 39 of the thirteenth and 25 of
`between_nodes.csv`, are predicted by the formulas and the network of training, of which nothing is fitted on them:
NCCL's latency of a step and 85 % of the datasheet's rate. **At first sight the 25 were 42.7 % off, with 64 % in the
interval at a width of 3.72; the bound is 75 % off; the 12, on GH200 over Slingshot, 53 % off with 58 % inside; the 34,
nine of them of 2019, 45 % off with 41 % inside; the 50 35 % off with 82 % inside; the 53, most of which cross slow
networks of clouds, 48 % off with 49 % inside; the 26, on GB10, MI308X and MI350X, 15 % off, all inside; the 39 32 % off
with 87 % inside; the 77 16 % off with 96 % inside; the 13 8 % off, all inside; the 39 15 % off with 97 % inside.** Now:

{between_nodes}

What was changed with these rows in view: between two nodes a tree sends half of what a ring does, so that NCCL's
all-reduces exceed the network's bus bandwidth there, as its authors say in several threads; what its tuner says of
protocols on a network, chosen on the first 91 rows, left 25 % of the 50 that came later in place of 35; steps grow as
networks below 200 Gb/s a GPU get slower, to 74 us at 50 Gb/s (where five sources on Amazon's P4d fit 38 to 122); and
what networks differ by (`network`) is read off all sources. What they show and nothing models: steps of 27 us over EFA
of 400 Gb/s, and of 6 to 15 us over InfiniBand, RoCE and Slingshot, where 14 us are assumed. `calibrate --links` among
your own hosts tells both figures of your network.
"""
