from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from opweld import target as target_module
from opweld.build.toolchain import clang_flags, gcc_flags
from opweld.errors import OptionError
from opweld.options import PROCESSORS, available_cores
from opweld.schedule.cost import CORES, core_of
from opweld.target import GPUS, KIB, MIB, Target, detect
from opweld.tensor.dtype import DType

AVX2 = frozenset(["sse4_2", "avx2", "fma", "f16c", "bmi1", "bmi2"])
AVX512 = AVX2 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])


def test_native_is_this_machine() -> None:
    native = Target.of("native")
    assert native.name in PROCESSORS
    assert native.cores == available_cores()
    assert native is Target.of("native")


def test_avx512_machine_with_dot_products() -> None:
    found = detect("x86_64", AVX512 | {"avx512_vnni", "avx512_bf16", "amx_tile"}, {1: 48 * KIB, 2: 2 * MIB}, 8, "gnu")
    assert (found.name, found.vector_bytes, found.vector_lanes_f32, found.vector_registers) == ("x86-64-v4", 64, 16, 32)
    assert (found.cores, found.l1_bytes, found.l2_bytes) == (8, 48 * KIB, 2 * MIB)
    assert found.l3_bytes == found.l2_bytes, "without an L3, the last level is L2"
    assert "avx512vnni" in found.features and "avx512bf16" in found.features
    assert "-mcpu=x86_64_v4+avx512vnni+avx512bf16+amx_tile+fast_dpwssd" in clang_flags(found)
    assert "-mamx-tile" in gcc_flags(found)
    assert "-mavx512vnni" in gcc_flags(found)


def test_permutations_of_bytes_are_found_by_the_name_that_linux_has_for_them() -> None:
    found = detect("x86_64", AVX512 | {"avx512vbmi", "avx512_vbmi2"}, {}, 2, "gnu")
    assert "avx512vbmi" in found.features and "avx512vbmi2" not in found.features


def test_avx2_machine_gets_256_bit_vectors() -> None:
    found = detect("x86_64", AVX2, {}, 2, "gnu")
    assert (found.name, found.vector_lanes_f32, found.vector_registers) == ("x86-64-v3", 8, 16)
    assert "-mprefer-vector-width=512" not in clang_flags(found)


@pytest.mark.parametrize(
    ("vendor", "family", "flags", "core"),
    [
        ("GenuineIntel", 6, "avx2 avx512f", "intel"),
        ("AuthenticAMD", 25, "avx2 avx512f", "zen4"),
        ("AuthenticAMD", 25, "avx2", ""),  # Zen 3
        ("AuthenticAMD", 26, "avx2 avx512f", ""),
    ],
)
def test_cores_are_read_from_cpuinfo(vendor: str, family: int, flags: str, core: str, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"vendor_id\t: {vendor}\ncpu family\t: {family}\nflags\t\t: {flags}\n\nprocessor\t: 1\n")
    assert target_module._read_core(file) == core
    assert target_module._read_core(tmp_path / "absent") == ""


def test_wide_elements_take_more_registers() -> None:
    found = Target.of("x86-64-v4")
    assert [found.lanes(dtype) for dtype in (DType.I8, DType.BF16, DType.F32, DType.F64)] == [64, 32, 16, 8]
    assert [found.registers(dtype) for dtype in (DType.I8, DType.F32, DType.F64)] == [32, 32, 16]


def test_every_target_has_figures_of_its_core() -> None:
    assert {name.partition(" ")[0] for name in CORES} == set(PROCESSORS) - {"native"} | set(GPUS)


def test_a_core_has_figures_of_its_own_where_they_are_known() -> None:
    intel, zen4, other = (detect("x86_64", AVX512, {}, 2, "gnu", core) for core in ("intel", "zen4", ""))
    assert core_of(intel) is CORES["x86-64-v4 intel"]
    assert core_of(zen4) is CORES["x86-64-v4 zen4"]
    assert core_of(other) is CORES["x86-64-v4"]
    assert core_of(detect("x86_64", AVX2, {}, 2, "gnu", "intel")) is CORES["x86-64-v3"]
    assert intel.digest() != other.digest()


def test_half_an_avx512_is_avx2() -> None:
    assert detect("x86_64", AVX2 | {"avx512f"}, {}, 2, "gnu").name == "x86-64-v3"


def test_arm_machine() -> None:
    found = detect("aarch64", frozenset({"asimd", "asimddp"}), {}, 4, "musl")
    assert (found.name, found.vector_lanes_f32, found.features) == ("aarch64", 4, ("dotprod",))
    assert found.triple == "aarch64-linux-musl"
    assert clang_flags(found) == ("-target", "aarch64-linux-musl", "-mcpu=generic+dotprod")


def test_too_old_and_unknown_processors_are_refused() -> None:
    with pytest.raises(OptionError, match="lacks avx2, fma"):
        detect("x86_64", AVX2 - {"avx2", "fma"}, {}, 2, "gnu")
    with pytest.raises(OptionError, match="no native target for a 'riscv64' processor"):
        detect("riscv64", frozenset(), {}, 2, "gnu")


def test_unknown_name_is_refused() -> None:
    with pytest.raises(OptionError, match="expected one of native, x86-64-v3"):
        Target.of("sparc")


@pytest.mark.parametrize("name", PROCESSORS[1:])
def test_generic_targets_do_not_depend_on_this_machine(name: str) -> None:
    generic = Target.of(name)
    assert generic.name == name
    assert not any("native" in flag for flag in clang_flags(generic))
    assert generic.digest() == Target.of(name).digest()


def test_digest_covers_every_field() -> None:
    base = Target.of("x86-64-v3")
    for field in dataclasses.fields(Target):
        value = getattr(base, field.name)
        changed = {int: lambda v: v + 1, str: lambda v: v + "x", tuple: lambda v: (*v, "x")}[type(value)](value)
        assert dataclasses.replace(base, **{field.name: changed}).digest() != base.digest(), field.name


def test_caches_are_read_from_sysfs(tmp_path: Path) -> None:
    for index, (kind, level, size) in enumerate([("Data", 1, "48K"), ("Instruction", 1, "64K"), ("Unified", 3, "32M")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, value in (("type", kind), ("level", level), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    (tmp_path / "index9").mkdir()
    assert target_module._read_caches(tmp_path) == {1: 48 * KIB, 3: 32 * MIB}
    assert target_module._read_caches(tmp_path / "hidden") == {}


def test_flags_are_read_from_cpuinfo(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert target_module._read_flags(file) == {"fpu", "avx2", "fma"}
    assert target_module._read_flags(tmp_path / "absent") == frozenset()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: Fast 9000: 2 GHz\nstepping\t: 1\n\n"
            "processor\t: 1\nmodel name\t: Slow 1\n",
            "Fast 9000: 2 GHz, family 26, model 2, stepping 1",
        ),
        (
            "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd0c\nCPU revision\t: 1\n",
            "implementer 0x41, part 0xd0c, variant 0x1, revision 1",
        ),
        ("", "unknown"),
    ],
)
def test_a_processor_is_named_with_its_numbers(tmp_path: Path, text: str, name: str) -> None:
    file = tmp_path / "cpuinfo"
    assert target_module._read_name(file) == "unknown"
    file.write_text(text)
    assert target_module._read_name(file) == name
    assert target_module.processor_name() == target_module.processor_name() != ""
