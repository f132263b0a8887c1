"""The text of docs/accuracy_published.md; `accuracy.pages` fills in the tables in braces."""

PUBLISHED = """# Published kernels

`make accuracy` wrote this page on {date}.

Times that other sources published (`examples/published`, whose README names them and what is assumed of each;
`scripts/published_kernels.py`), on machines and libraries most of which no table of
[Accuracy](accuracy.md) has. No table of constants is fitted on them.

## The seventeenth batch

The seventeenth batch, 20 sources and 188 rows, 39 of them flagged, was gathered when all below was done, by a reader
who had seen no prediction: sums by index, pooling, convolutions of films, steps of SGD, selections, steps of the gated
delta rule, products of few rows, in batches and in fp8 with blocks of scales, and all-reduces of two nodes, on an
MI300X, MI350X, MI355X, H20-3e, H100 NVL, H200, B200, B300, GB200, L20 and RTX 3070. **At first sight (commit 6481b6ba)
it was 81.4 % off, 29.6 % in the median, with 74 % in the interval at a width of 3.59; the datasheet's roofline is 54 %
off.** 14 sums by index, of kernels that PyTorch has only now, were 526 % off, the other 135 rows 35 %. With the
flagged ones it was 84.2 % off, 29.8 % in the median, with 72 % inside. Now:

{seventeenth}

The label of `aiter-bf16-decode` was set after the first look: its file names the kernels flydsl_decode, and AITER's
other products are tiles.
What was changed with these rows in view:

- PyTorch's sums by index add vectors of 16 B in bulk on Hopper and later, from 2.13 (`pytorch-183739`, `-182854` and
  `-183479`), and its pools of films have a thread an output in blocks of 32 x 8 (`tileops-1687`): until then both were
  predicted by what they are not. A factor of two of doubt stands beside both.
- Products of up to four rows by kernels that multiply a matrix with vectors stream it (`aiter-bf16-decode`, 97 to 15 %
  off; `rocm-libraries-12329` of the seventh batch, 20 to 11 %).
- PyTorch's fused steps convert each weight to doubles, which takes its time where an SM has two lanes for them
  (`pytorch-129350`, 53 to 47 %).
- torch.topk of long rows from 2.7 and before 2.10 reads the counts of all blocks of a row in each of them
  (`pytorch-167462`, 25 to 5 %). Three single rows on an H20, which the seventh batch had left out, took 1.1, 6.5 and
  60 times the predicted time, and take 0.55 to 0.61 times now.
- Convolutions by FlyDSL add up no sums in memory and transpose images alone; how much slower they are than MIOpen's
  beside that is what seven of another source say, which no table has (`aiter-conv3d`, 47 to 15 %).

What they show and nothing models: vLLM's batch-invariant product in Triton on an H100 NVL takes 1.4 to 3.4 times the
predicted time, up to 64 rows always 49 to 51 us, which may be the host's; foreach steps of SGD on an RTX 3070 take 1.6
to 1.8 times; products by cuTile and CUTLASS on a B300 1.5 to 1.9 times; RCCL's all-reduces of two nodes of MI350X 1.4
to 1.9 times. Composable Kernel's fp8 products of an MI355X, in the sixteenth batch, would come out near with the rate
of CDNA 3's instructions, which it took until github.com/ROCm/composable_kernel/pull/2202; nothing tells by which those
were compiled.

## The sixteenth batch

The sixteenth batch, 18 sources and 189 rows, 59 of them flagged, was gathered before that, by a reader who had seen no
prediction: products in 16, 8 and 4 bits, prompts and decodes, experts in nvfp4, look-ups, casts and linear
cross entropy, on an MI350X, MI355X, RTX 5060, RTX 5090, B200, GH200, H20-3e, H200, H100 of 80 GB (PCIe) and 96 GB, and
A100. **At first sight (commit 395d6553) it was 22.5 % off, 15.7 % in the median, with 92 % in the interval at a width
of 4.10; the datasheet's roofline is 59 % off.** With the flagged ones it was 61.5 % off, 17.7 % in the median, with
83 % inside. Now:

{sixteenth}

The labels of `liger-1348` were set after the first look: Liger's kernels in CuTe DSL, and Quack's up to 4,096 rows,
form all logits at once, where Liger's in Triton go chunk by chunk. So were those of `liger-1339` in the twelfth batch,
eight rows that come out 3 % off with them.
What was changed with these rows in view: PyTorch's layers of experts in dtypes that it multiplies in no groups are a
loop over the experts (`triton-moe-a100-torch`); five rows of that loop in our own records come out 17 % off.
What was changed with rows of all batches in view: attention by cuDNN and FlashAttention-4 on B200, GB200 and GB300
takes the longer of softmax and products and not their sum (55 rows: 21 to 8 % off); Triton's on Hopper has blocks of
128 rows and a lower rate (18 rows: 20 to 12 %); and RCCL starts later than NCCL on meshes of xGMI (117 rows: 86 to 98 %
inside).
What they show and nothing models: Composable Kernel's fp8 products of an MI355X by AITER, in 1.7 to 2.4 times the
predicted time; a paged decode by AITER on an MI350X, in 3.6 times; two million rows that Triton and FBGEMM select from
a table that the L2 of an H100 holds, in twice it; PyTorch's casts before release 2.6, in 1.2 times; and TensorRT-LLM's
experts in nvfp4 on a B200, in 0.8.

## The fifteenth batch

The fifteenth batch, 20 sources and 158 rows, 106 of them flagged, was gathered before that, by a reader who had seen no
prediction. All are recurrences with states: Mamba-2's steps and prompts, lightning attention, retention and gated delta
rules, on an A100, H100, H200, H800, B200, B300, GB200, GB300 and RTX PRO 6000. **At first sight (commit 7c3f89d6) it
was 28.7 % off, 22.0 % in the median, with 83 % in the interval at a width of 4.00; the datasheet's roofline is 66 %
off.** With the flagged ones it was 27.3 % off, 22.8 % in the median, with 86 % inside. Now:

{fifteenth}

What was changed with these rows in view: states of fewer than 128 value columns compute at a lower rate (`vllm-27299`),
and Kimi's delta rule takes 1.65 times as long as the gated one (`paddle-133`).
What they show and nothing models: FlashInfer's own gated delta rule on a B300, in a third of the predicted time, which
is that of Triton's; Mamba-2's prompts in one fused kernel, and FlashInfer's steps, in 0.6 to 0.8 of it; vLLM's step of
a state in 16 bits on a B200, in 0.63.

## The fourteenth batch

The fourteenth batch, 35 sources and 381 rows, 79 of them flagged, was gathered before that, by a reader who
had seen no prediction. **At first sight (commit 05f6a07d) it was 20.7 % off, 13.6 % in the median, with 87 % in the
interval at a width of 2.38; the datasheet's roofline is 44 % off.** Products were 16 % off with 96 % inside (14 of an
RTX 4090 26 %, two of them one row by a matrix that its L2 holds), norms and gated activations 13 % with 94 %. Now:

{fourteenth}

What was changed with these rows in view: decodes in Triton or by hand, whose blocks leave SMs idle unless they split
the keys, say how unsure that is; and so do PyTorch's kernels that are bound by memory on AMD's Radeons, of which no
table has a row.
What they show and nothing models: FlashInfer's addition with RMSNorm of rows of 4,096 and 8,192 columns on an H20 takes
2.3 times the predicted time, its RMSNorm alone 1.8 times; one row by an fp32 matrix of 32 MB in the L2 of an RTX 4090
half of it; cuDNN's and unfolded convolutions of a single picture on an RTX 3090, timed by the clock of a program, 1.3
to 3.4 times; a T4's fp32 products of 512 and 1024 rows 1.8 to 2.2 times, as its clock had fallen.

## The thirteenth batch

The thirteenth batch, 41 sources and 443 rows, 149 of them flagged, was gathered before that, by two readers who had
seen no prediction. **At first sight (commit 4c0be53c) it was 26.1 % off, 14.7 % in the median, with 86 % in the
interval at a width of 2.75; the datasheet's roofline is 50 % off.** Products, attention and experts were 34.4 % off
with 79 % inside, kernels bound by memory and exchanges 20.4 % with 91 %. Now:

{thirteenth}

What was changed with these rows in view: products in fp64 on chips with few lanes for it hide the loads of small tiles
behind them (ten batches on an RTX 4090: 129 to 15 % off); RCCL's rings use few links of a full mesh among 3, 5, 6 and 7
GPUs, and exchanges of a pair of GPUs over PCIe say how hosts differ; one query with heads above those of all tables,
kernels of xformers of 2022 and 2023, and Triton on Volta say how unsure they are.
What they show and nothing models: cuDNN's decodes with heads of 512 on a B200, in 1.7 to 5 times the predicted time;
its whole prompts there in 0.6 to 1 times; RCCL called by PyTorch for small messages, as before; RMSNorm of 16 rows on
an MI308X in two thirds of it, and its gradients by FlyDSL in 0.6 times.

## The twelfth batch

The twelfth batch, 67 sources and 540 rows, 121 of them flagged, was gathered before that, by two readers who had
seen no prediction. **At first sight (commit cc6b9b3d) it was 35.0 % off, 17.3 % in the median, with 80 % in the
interval at a width of 2.57; the datasheet's roofline is 46 % off.** Now:

{twelfth}

What was changed with these rows in view: one row by narrow weights streams them where a library has a kernel for a
vector (onnxruntime's come out 8 % off, before twice too slow); products on Turing's tensor cores, of which no table has
a row, say so; and engines call norms and products as operators of PyTorch, where the dispatch of PyTorch 2.1 had stood
for theirs. One label was set right after the first look: 13 MB of an L4, timed in a loop, stay in its L2.
What they show and nothing models: Liger's fused linear cross entropy on a B200, in four times the time in Triton, and
in CuTe without the chunks that its bound counts, in a fifth of it; vLLM's quantisation of groups in fp8, in 1.6 times;
RMSNorm of a vLLM that moves two numbers at once, in a third; PyTorch's attention on an RTX 3060 under Windows, in 1.6
times.

## The eleventh batch

The eleventh batch, 59 sources and 730 rows, 67 of them flagged, was gathered when all below was done, by a reader who
had seen no prediction. **At first sight (commit 9d5de119) it was 43.2 % off, 18.1 % in the median, with 78 % in the
interval at a width of 2.50; the datasheet's roofline is 47 % off.** One laboratory has a fifth of it, 143 rows of an
RTX 5090 that a compiled program timed one by one (89 % off); all others were 30.5 % off, 15.0 % in the median, with
81 % in the interval. Products, attention and convolutions were 41.8 % off with 80 % inside (37.1 and 83 without that
laboratory); kernels bound by memory and exchanges 45.1 % with 75 % (22.7 and 78). Its 77 exchanges between nodes, up
to 64 of eight B200, were 16 % off with 96 % inside. Now:

{eleventh}

What was changed with these rows in view: between two events a call takes the dispatch of who calls, a compiled program,
PyTorch since 2.2 or Python that launches a kernel, where all had taken that of PyTorch 2.1, and hosts that nobody
measured are as unsure as hosts differ; plain products in fp8 on GeForce cards of Blackwell are bounded by the rate of
instructions with scales, at which cuBLASLt and PyTorch run them; TensorRT-LLM's decodes on a B200 run its kernels for
groups of heads, as published runs show, and not the kernel to which the release of the table fell back; attention in
TF32 takes the tensor engine's rate; attention on AMD has other rates; NCCL's collectives are in a measured installation
on the machines of its rows alone; and convolutions in fp32 by MIOpen, and rotations by somebody's hand, say how unsure
they are.
What they show and nothing models: softmax, norms and SwiGLU of 67 MB in the 96 MB of L2 of an RTX 5090, in a quarter to
a half of the time; RCCL's small all-reduces called by PyTorch one by one, in two to five times; all-reduces over
Perlmutter's two nodes, which take the ring's time; NCCL's forced ring on 8 H100, whose switch is assumed; products with
k of 14336 and 28672 on an A40 and an RTX 4090, in 1.4 to 1.7 times; decodes of FlashInfer on a B200, in twice the time,
now inside.

## The tenth batch

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
