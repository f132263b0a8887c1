"""The text of docs/accuracy_published.md; `accuracy.pages` fills in the tables in braces."""

from published_earlier import EARLIER

_NEWER = """# Published kernels

`make accuracy` wrote this page on {date}.

Times that other sources published (`examples/published`, whose README names them and what is assumed of each;
`scripts/published_kernels.py`), on machines and libraries most of which no table of
[Accuracy](accuracy.md) has. No table of constants is fitted on them.

## The eighteenth batch

The eighteenth batch, 22 sources and 143 rows, 55 of them flagged, was gathered when all below was done, by a reader who
had seen no prediction: gradients and prompts of attention, norms, softmax, quantising, copies, cumulative sums,
experts, products of few rows, in groups and in fp8 with blocks of scales, and a gather, on an MI250X, MI250, MI300X,
MI355X, RX 9070 XT, H20, H20-3e, H100 of 96 GB, B200, B300, GB200, RTX 5090, RTX 3090, V100 and A100. **At first sight
(commit 30849a1e) it was 22.5 % off, 16.7 % in the median, with 86 % in the interval at a width of 3.45; the datasheet's
roofline is 60 % off.** With the flagged ones it was 23.3 % off, 19.3 % in the median, with 88 % inside. Now:

{eighteenth}

What was changed with these rows in view, each by what sources say:

- TileLang's kernels for AMD have instructions of k = 16 on every chip, which CDNA 4 takes as many cycles for as for
  k = 32; its attention on AMD's machines is Triton's, another compiler of tiles, and no longer AMD's own
  (`tilelang-2248`, 76 to 45 % off).
- The interval of a library that is named reaches no chain of PyTorch's kernels, which it has one kernel for: calls that
  quantise by torchao, Transformer Engine and Helion had intervals of 10 to 40, and have 2.3 to 4.0 (`rocm-te-598` and
  `torchao-3306`). Nor does FlashAttention-2's with a window reach PyTorch's masks.
- What libraries differ by on NVIDIA's machines says nothing of AMD's, which ran PyTorch alone: 34 streams by HIP and
  TileLang on five Instincts come out 13 % off in place of 18.
- FlagGems scans rows of more than 16,384 elements in three kernels, the first of which reads them too (`flaggems-4365`,
  and `flaggems-178` of the seventh batch: 36 to 26 % off).

Looking for the same in older batches: Liger's linear cross entropy in Triton added the gradients of the weights in two
passes more, which convert each element, until release 0.8.3 (`liger-1339` of the twelfth, 72 to 2 % off, with nothing
fitted); cuBLAS has one kernel for all batches in fp32 on an RTX 5090, which a profile shows at 41 % of the
multiply-adds (`deplodock-sgemm` of the fifth, 37 to 8 %); CUB's radix sorts rank whole tiles of 8,064 keys, however few
keys there are (20 rows of five pull requests, 38 to 32 %); and short calls that quantise alone have as wide an interval
as ten sources differ by.
What they show and nothing models: Triton's product of groups, its tutorial's, on an MI250X and MI250 in 1.3 to 2.2
times the predicted time; NCCL's gather of logits of 8 B200 in 1.7 times, without its symmetric memory; and causal
prompts by TileLang on an MI355X in 2.3 to 2.7 times.

## The seventeenth batch

The seventeenth batch, 20 sources and 188 rows, 39 of them flagged, was gathered before that, by a reader who had seen
no prediction: sums by index, pooling, convolutions of films, steps of SGD, selections, steps of the gated delta rule,
products of few rows, in batches and in fp8 with blocks of scales, and all-reduces of two nodes, on an MI300X, MI350X,
MI355X, H20-3e, H100 NVL, H200, B200, B300, GB200, L20 and RTX 3070. **At first sight (commit 6481b6ba) it was 81.4 %
off, 29.6 % in the median, with 74 % in the interval at a width of 3.59; the datasheet's roofline is 54 % off.** 14 sums
by index, of kernels that PyTorch has only now, were 526 % off, the other 135 rows 35 %. With the flagged ones it was
84.2 % off, 29.8 % in the median, with 72 % inside. Now:

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

"""

PUBLISHED = _NEWER + EARLIER
