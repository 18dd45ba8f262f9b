"""Names and descriptions of machines and networks, and what is said of those that are none."""

from __future__ import annotations

import pytest

from shepherd.core import InvalidRequest
from shepherd.models import machines
from shepherd.models.machines import MACHINES, enough, parse, parse_network


@pytest.mark.parametrize("row", MACHINES, ids=lambda row: row.name)
def test_every_row_has_a_source_and_figures_that_are_possible(row: machines.Row) -> None:
    assert row.source
    assert 8 <= row.gib <= 1024
    assert 100 <= row.gb_s <= 10_000
    assert row.int8 == 0 or 1 <= row.int8 / row.fp16 <= 4.01
    assert parse(row.name).memory_bytes == int(row.gib * row.share * 2**30)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("4090", "4090"),
        ("RTX 4090", "4090"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("2x4090", "2 x 4090"),
        ("4 × h100", "4 x h100"),
        ("7900XTX", "7900xtx"),
        ("2x7900xtx", "2 x 7900xtx"),
        ("Apple M4 Max", "m4-max"),
        ("dgx spark", "dgx-spark"),
        ("ram=64GiB,bandwidth=90,tflops=2", "64GiB at 90 GB/s"),
        ("ram=0.5T, bandwidth=90.5, tflops=2, n=2, gpu=yes", "2 x 0.5T at 90.5 GB/s"),
    ],
)
def test_a_machine_is_known_by_what_people_call_it(text: str, title: str) -> None:
    assert parse(text).title == title


def test_a_described_machine_is_what_is_described() -> None:
    box = parse("ram=64GiB,bandwidth=90,tflops=2")
    assert (box.memory_bytes, box.is_gpu, box.can_serve) == (60 * 2**30, False, False)
    assert box.rates.cache == 90e9 * machines.READS
    assert parse("ram=24GiB,bandwidth=90,tflops=2,gpu=yes").can_serve


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no machine is called ''"),
        ("4091", "no machine is called '4091'; did you mean 4090?"),
        ("laptop", "Known are this, 3060, 3080"),
        ("0x4090", "'0x4090' names 0 devices; give a number from 1 to 1024"),
        ("99999999999x4090", "give a number from 1 to 1024"),
        ("2xlaptop", "no machine is called 'laptop'"),
        ("2xm4-max", "m4-max is a whole machine; for several of them give --machine m4-max several times"),
        ("ram=1G,bandwidth=90,tflops=2,n=2", "n is 2 and gpu is not yes"),
        ("ram=64GiB", "lacks bandwidth and tflops"),
        ("ram=64GiB,bandwidth=0,tflops=2", "bandwidth is '0'; give a number above 0"),
        ("ram=64GiB,bandwidth=90,tflops=nan", "tflops is 'nan'"),
        ("ram=lots,bandwidth=90,tflops=2", "ram is 'lots'; give an amount from 1 MiB to 1024 TiB"),
        ("ram=9999999T,bandwidth=90,tflops=2", "ram is '9999999T'"),
        ("ram=1G,ram=2G,bandwidth=90,tflops=2", "'ram=2G' is not understood"),
        ("ram=1G,bandwidth=90,tflops=2,gpu=maybe", "gpu is 'maybe'; give yes or no"),
        ("ram=1G,bandwidth=90,tflops=2,n=1.5", "n is '1.5'"),
        ("ram=1G,bandwidth=90,tflops=2,colour=red", "'colour=red' is not understood"),
    ],
)
def test_a_machine_that_is_none_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(text)
    assert says in refused.value.message
    assert refused.value.field == "machine"
    assert len(refused.value.message) < 500


def test_the_smallest_machine_with_room_is_named() -> None:
    assert enough(2**30) == "3080"
    assert enough(23 * 2**30) == "m4"
    assert enough(100 * 2**30) == "dgx-spark"
    assert enough(2**50) == ""
    assert enough(70 * 2**30, serves=True) == "a100"


@pytest.mark.parametrize(
    ("text", "bytes_per_s", "latency_s"),
    [
        ("10G", 1.25e9, 0.0002),
        ("1 Gbit/s", 1.25e8, 0.0002),
        ("100M, 5ms", 1.25e7, 0.005),
        ("10GbE,80us", 1.25e9, 8e-5),
    ],
)
def test_a_network_is_bits_per_second_and_a_round_trip(text: str, bytes_per_s: float, latency_s: float) -> None:
    found = parse_network(text)
    assert found.bytes_per_s == bytes_per_s
    assert found.latency_s == pytest.approx(latency_s)


@pytest.mark.parametrize("text", ["", "fast", "0", "0G", "-1G", "999999T", "10G,", "10G,fast", "1e9"])
def test_a_network_that_is_none_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(InvalidRequest, match="give its bits per second") as refused:
        parse_network(text)
    assert refused.value.field == "network"
