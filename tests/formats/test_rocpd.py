"""The database of rocprofv3: its tables by process, what launched its kernels, and against its own CSV."""

import sqlite3

import pytest

from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import InputFileError
from perfmodel.formats import read_profile
from perfmodel.formats.detect import find_format
from perfmodel.profile.timeline import CopyDirection

#: the columns that are read, of schema 3 of ROCprofiler-SDK
SCHEMA = """
CREATE TABLE rocpd_string{0} (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
CREATE TABLE rocpd_event{0} (id INTEGER PRIMARY KEY, guid TEXT, category_id, stack_id, parent_stack_id, correlation_id);
CREATE TABLE rocpd_info_agent{0} (id INTEGER PRIMARY KEY, guid TEXT, type, absolute_index, name, product_name);
CREATE TABLE rocpd_info_kernel_symbol{0} (id INTEGER PRIMARY KEY, guid TEXT, kernel_name, display_name);
CREATE TABLE rocpd_pmc_event{0} (id INTEGER PRIMARY KEY, guid TEXT, event_id, pmc_id, value);
CREATE TABLE rocpd_region{0} (id INTEGER PRIMARY KEY, guid TEXT, pid, tid, start, end, name_id, event_id, extdata);
CREATE TABLE rocpd_kernel_dispatch{0} (id INTEGER PRIMARY KEY, guid TEXT, pid, tid, agent_id, kernel_id, dispatch_id,
    queue_id, stream_id, start, end, region_name_id, event_id);
CREATE TABLE rocpd_memory_copy{0} (id INTEGER PRIMARY KEY, guid TEXT, pid, tid, start, end, name_id, dst_agent_id,
    src_agent_id, size, queue_id, stream_id, event_id);
"""
STRINGS = ["HIP_RUNTIME_API", "KERNEL_DISPATCH", "MEMORY_COPY", "hipLaunchKernel", "hipStreamSynchronize",
           "MEMORY_COPY_HOST_TO_DEVICE", "MARKER_CORE_RANGE_API", "roctxRangePushA", "HSA_CORE_API",
           "hsa_signal_wait_scacquire", "MEMORY_COPY_DEVICE_TO_DEVICE"]  # fmt: skip


def process(base, suffix):
    """Write a process: a copy, two launches of a kernel, the second one on a later queue, and a wait."""
    base.executescript(SCHEMA.format(suffix))

    def insert(table, columns, rows):
        marks = ", ".join("?" for _ in columns.split(","))
        base.executemany(f"INSERT INTO {table}{suffix} ({columns}) VALUES ({marks})", rows)

    insert("rocpd_string", "id, string", list(enumerate(STRINGS, start=1)))
    insert("rocpd_info_agent", "id, type, absolute_index, name, product_name",
           [(1, "CPU", 0, "EPYC", "AMD EPYC"), (2, "GPU", 4, "gfx942", "AMD Instinct MI300X")])  # fmt: skip
    insert("rocpd_info_kernel_symbol", "id, kernel_name, display_name", [(7, "_Z1fPf.kd", "f(float*)")])
    # events: category, and the stack that a call and its work share
    events = [(1, 1, 10), (2, 2, 10), (3, 1, 11), (4, 2, 11), (5, 1, 12), (6, 3, 13), (7, 7, 14), (8, 9, 15)]
    insert("rocpd_event", "id, category_id, stack_id", events)
    insert("rocpd_region", "tid, start, end, name_id, event_id, extdata",
           [(1, 1000, 1500, 4, 1, "{}"), (1, 2000, 2500, 4, 3, "{}"), (1, 3000, 9500, 5, 5, "{}"),
            (1, 900, 9600, 8, 7, '{"message": "step"}'), (1, 3100, 9400, 10, 8, "{}")])  # fmt: skip
    insert("rocpd_kernel_dispatch", "agent_id, kernel_id, queue_id, stream_id, start, end, event_id",
           [(2, 7, 1, 0, 2000, 4000, 2), (2, 7, 2, 0, 4500, 9000, 4)])  # fmt: skip
    insert("rocpd_memory_copy", "start, end, name_id, dst_agent_id, src_agent_id, size, stream_id, event_id",
           [(100, 600, 6, 2, 1, 4096, 0, 6)])  # fmt: skip


@pytest.fixture
def database(tmp_path):
    """Return a function that writes processes and statements, and reads the file: ``database(suffixes, *sql)``."""

    def call(suffixes=("_00ab",), *statements, by="shape"):
        path = tmp_path / "1_results.db"
        path.unlink(missing_ok=True)
        base = sqlite3.connect(path)
        for suffix in suffixes:
            process(base, suffix)
        for statement in statements:
            base.execute(statement)
        base.commit()
        base.close()
        assert find_format(path).reader.NAME == "rocpd"
        return read_profile(path, by=by)

    return call


def test_kernels_and_copies_with_what_launched_them(database):
    profile = database()
    found = {entry.name: (entry.time_s, entry.calls, entry.category) for entry in profile.entries}
    assert found == {
        "f(float*)": (pytest.approx(6.5e-6), 2, EventKind.KERNEL),
        "MEMORY_COPY_HOST_TO_DEVICE 4.096 kB": (pytest.approx(0.5e-6), 1, EventKind.MEMCPY),
    }
    timeline = profile.timeline
    names = [timeline.names[name] for name in timeline.api.name]
    assert names == ["hipLaunchKernel", "hipLaunchKernel", "hipStreamSynchronize"]
    assert timeline.gpu.launch.tolist() == [-1, 0, 1]
    assert (timeline.gpu.stream.tolist()[1:], set(timeline.gpu.device.tolist())) == ([1, 2], {4})
    assert timeline.gpu.direction.tolist()[0] == CopyDirection.HOST_TO_DEVICE
    assert [timeline.names[name] for name in timeline.annotations.name] == ["step"]
    assert profile.skipped == {"call of HSA, which calls of HIP make": 1}
    assert profile.device == "AMD Instinct MI300X"


def test_processes_have_numbers_of_their_own(database):
    profile = database(
        ("_00ab", "_00cd"), "CREATE VIEW rocpd_kernel_dispatch AS SELECT * FROM rocpd_kernel_dispatch_00ab"
    )
    assert {entry.name: entry.calls for entry in profile.entries}["f(float*)"] == 4
    launches = profile.timeline.gpu.launch
    assert sorted(launches[launches >= 0].tolist()) == [0, 1, 2, 3]


def test_calls_of_hsa_count_where_hip_was_not_traced(database):
    profile = database(("_00ab",), "DELETE FROM rocpd_region_00ab WHERE name_id IN (4, 5)")
    assert [profile.timeline.names[name] for name in profile.timeline.api.name] == ["hsa_signal_wait_scacquire"]
    assert profile.skipped == {}


def test_counted_kernels_have_no_time_line_of_the_program(database):
    profile = database(("_00ab",), "INSERT INTO rocpd_pmc_event_00ab (event_id, pmc_id, value) VALUES (2, 1, 5.0)")
    assert profile.timeline is None
    assert profile.total_time_s == database().total_time_s


def test_a_copy_between_gpus_is_not_within_one(database):
    profile = database(
        ("_00ab",),
        "INSERT INTO rocpd_info_agent_00ab (id, type, absolute_index) VALUES (3, 'GPU', 5)",
        "UPDATE rocpd_memory_copy_00ab SET name_id = 11, src_agent_id = 3",
    )
    assert profile.timeline.gpu.direction.tolist()[0] == CopyDirection.BETWEEN_DEVICES


def test_columns_that_a_release_lacks_cost_only_themselves(database):
    profile = database(
        ("_00ab",),
        "ALTER TABLE rocpd_info_agent_00ab DROP COLUMN product_name",
        "ALTER TABLE rocpd_region_00ab DROP COLUMN extdata",
        "ALTER TABLE rocpd_kernel_dispatch_00ab DROP COLUMN event_id",
        "DROP TABLE rocpd_pmc_event_00ab",
    )
    assert profile.total_time_s == pytest.approx(7e-6)
    assert profile.device == "gfx942"
    assert profile.timeline.gpu.launch.tolist() == [-1, -1, -1]


def test_a_database_without_work_or_cut_off_is_told(database, tmp_path):
    with pytest.raises(InputFileError, match=r"no kernels and no copies.*--sys-trace"):
        database(("_00ab",), "DELETE FROM rocpd_kernel_dispatch_00ab", "DELETE FROM rocpd_memory_copy_00ab")
    database()
    path = tmp_path / "1_results.db"
    path.write_bytes(path.read_bytes()[:20000])
    with pytest.raises(InputFileError, match="is not a complete SQLite file of rocprofv3"):
        read_profile(path)
