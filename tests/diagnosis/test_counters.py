"""Arithmetic of hardware counters: worked cases, limits, and what must not be added twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.diagnosis import counters

SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
TENSOR = "sm__ops_path_tensor_src_"


@pytest.mark.parametrize(("element_bytes", "sectors"), [(8, 8), (4, 4), (2, 2), (1, 1), (0.5, 1)])
def test_a_coalesced_warp_touches_its_bytes_over_32(element_bytes, sectors):
    # 32 lanes x 4 B = 128 B = 4 sectors of 32 B; below a byte for each lane one sector is still one
    assert counters.ideal_sectors_per_request(element_bytes) == sectors


def test_32_sectors_for_fp32_waste_seven_eighths():
    # each lane in a sector of its own: 32 sectors moved, 4 needed
    assert counters.coalescing(32, 4) == pytest.approx(1 / 8)
    # 3.2 sectors a request is below the 4 of fp32, so nothing is wasted; for bytes the ideal is 1
    assert counters.coalescing(3.2, 4) == 1.0
    assert counters.coalescing(3.2, 1) == pytest.approx(1 / 3.2)


def test_fewer_warps_that_wait_less_do_more():
    # 32 x 0.1 = 3.2; 16 x 0.7 = 11.2; 11.2 / 3.2 = 3.5
    many, few = counters.useful_warps(32, 0.9), counters.useful_warps(16, 0.3)
    assert (many, few) == (pytest.approx(3.2), pytest.approx(11.2))
    assert few / many == pytest.approx(3.5)


@given(warps=st.floats(0, 64), stalled=st.floats(-1, 2), size=st.sampled_from([1, 2, 4, 8]), sectors=st.floats(0, 32))
def test_shares_stay_in_their_limits(warps, stalled, size, sectors):
    assert 0 <= counters.useful_warps(warps, stalled) <= warps
    assert 0 < counters.coalescing(sectors, size) <= 1


def test_time_is_the_duration_or_cycles_by_their_rate():
    assert counters.time_s({"gpu__time_duration.sum": 2e-6}) == 2e-6
    # 3000 cycles at 1.5 GHz are 2 us
    cycles = {"sm__cycles_elapsed.avg": 3000.0, "sm__cycles_elapsed.avg.per_second": 1.5e9}
    assert counters.time_s(cycles) == pytest.approx(2e-6)
    assert counters.time_s({"sm__cycles_elapsed.avg": 3000.0}) is None


def test_vector_flop_are_adds_and_multiplications_and_two_for_an_fma():
    counts = {SASS.format(op): 10.0 for op in ("fadd", "fmul", "ffma", "dadd", "dmul", "dfma", "hadd", "hmul", "hfma")}
    # 10 + 10 + 2 x 10; half instructions work on two values: 2 x 10 + 2 x 10 + 4 x 10
    assert counters.flop_by_engine(counts) == {"fp64_vector": 40.0, "fp32_vector": 40.0, "fp16_vector": 80.0}


def test_rates_for_each_cycle_and_derived_metrics_give_the_same_flop():
    # over 1000 cycles: 1 add, 2 multiplications, 3 fma a cycle = 1000 + 2000 + 2 x 3000 = 9000 FLOP
    rates = {
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed": 1.0,
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed": 2.0,
        "derived__smsp__sass_thread_inst_executed_op_ffma_pred_on_x2": 6.0,
        "smsp__cycles_elapsed.avg": 1000.0,
    }
    assert counters.flop_by_engine(rates) == {"fp32_vector": pytest.approx(9000.0)}
    # 1 us at 1 GHz are the same 1000 cycles
    del rates["smsp__cycles_elapsed.avg"]
    rates |= {"smsp__cycles_elapsed.avg.per_second": 1e9, "gpu__time_duration.sum": 1e-6}
    assert counters.flop_by_engine(rates) == {"fp32_vector": pytest.approx(9000.0)}


def test_tensor_operations_of_a_bf16_product_of_1024_are_2mnk():
    # 2 x 1024^3 = 2,147,483,648, counted once: the counter is operations, not instructions
    assert counters.flop_by_engine({f"{TENSOR}bf16_dst_fp32.sum": 2147483648.0}) == {"bf16_tensor": 2.0 * 1024**3}


def test_a_parent_counter_is_not_added_to_its_children():
    children = {f"{TENSOR}fp16_dst_fp32_sparsity_off.sum": 70.0, f"{TENSOR}fp16_dst_fp32_sparsity_on.sum": 30.0}
    assert counters.flop_by_engine(children) == {"fp16_tensor": 100.0}
    assert counters.flop_by_engine({**children, f"{TENSOR}fp16_dst_fp32.sum": 100.0}) == {"fp16_tensor": 100.0}
    several = {**children, f"{TENSOR}fp16_dst_fp16.sum": 5.0}
    assert counters.flop_by_engine(several) == {"fp16_tensor": 105.0}
    assert counters.flop_by_engine({**several, f"{TENSOR}fp16.sum": 105.0}) == {"fp16_tensor": 105.0}


def test_volta_counts_512_flop_an_instruction_and_no_other_architecture_does():
    pipe = {"sm__inst_executed_pipe_tensor.sum": 4.0}
    assert counters.flop_by_engine(pipe, "7.0") == {"fp16_tensor": 2048.0}
    assert counters.flop_by_engine(pipe, "8.0") == {}


def test_no_counter_is_not_zero_flop():
    assert counters.flop_by_engine({"dram__bytes.sum": 1.0}) == {}
    # adds without fma would miss most of the work
    assert counters.flop_by_engine({SASS.format("fadd"): 1.0, SASS.format("fmul"): 1.0}) == {}


@pytest.mark.parametrize(
    "dram",
    [
        {"dram__bytes.sum": 3e6},
        {"dram__bytes_read.sum": 2e6, "dram__bytes_write.sum": 1e6},
        {"dram__bytes_op_read.sum": 2e6, "dram__bytes_op_write.sum": 1e6},
        # 3 TB/s over 1 us
        {"dram__bytes.sum.per_second": 3e12, "gpu__time_duration.sum": 1e-6},
    ],
)
def test_dram_bytes_from_every_set_of_counters(dram):
    assert counters.memory_bytes(dram) == {"hbm": pytest.approx(3e6)}


def test_sectors_are_32_bytes_and_half_of_the_traffic_is_none():
    assert counters.memory_bytes({"lts__t_sectors.sum": 10.0}) == {"l2": 320.0}
    loads, stores = ({f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum": 10.0} for op in ("ld", "st"))
    assert counters.memory_bytes(loads | stores) == {"l1": 640.0}
    assert counters.memory_bytes(loads) == counters.memory_bytes({"dram__bytes_read.sum": 2e6}) == {}


def test_a_level_that_moved_nothing_moved_zero():
    assert counters.memory_bytes({"dram__bytes.sum": 0.0}) == {"hbm": 0.0}


def test_what_warps_wait_for_is_a_share_of_their_latency():
    # 20 cycles an instruction, of which 12 on memory; 8 warps of which 2 can issue
    readings = {
        "smsp__average_warp_latency_per_inst_issued.ratio": 20.0,
        "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 12.0,
        "smsp__average_warps_issue_stalled_long_scoreboard_not_issued_per_issue_active.ratio": 11.0,
        "smsp__warps_active.avg.per_cycle_active": 8.0,
        "smsp__warps_eligible.avg.per_cycle_active": 2.0,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 50.0,
        "smsp__warp_issue_stalled_barrier_per_warp_active.pct": 5.0,
    }
    found = counters.derived(readings)
    assert found["stalled_on_long_scoreboard"] == pytest.approx(0.6)
    assert found["stalled_on_barrier"] == pytest.approx(0.05)
    assert not any("not_issued" in name for name in found)
    assert found["stall_fraction"] == pytest.approx(0.75)
    assert found["useful_warps"] == pytest.approx(2.0)
    assert found["achieved_occupancy"] == 0.5


def test_packed_fp32_instructions_work_on_two_values():
    counts = {SASS.format(op): 10.0 for op in ("ffma", "fadd2", "fmul2", "ffma2")}
    # 2 x 10 for the fma; 2 x 10 + 2 x 10 + 4 x 10 for the packed ones
    assert counters.flop_by_engine(counts) == {"fp32_vector": 100.0}


def test_bytes_of_device_memory_are_those_of_the_model():
    found = counters.derived({"dram__bytes.sum": 3e6, "dram__throughput.avg.pct_of_peak_sustained_elapsed": 40.0})
    assert found == {"hbm_bytes": 3e6, "hbm_utilization": 0.4}
