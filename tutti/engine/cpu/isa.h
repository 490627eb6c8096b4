// Which instruction set the CPU kernels use. Kernels written with Highway are compiled for the
// targets below and dispatch at run time; intrinsics outside Highway ask use_bf16_dot().
//
// A Highway source includes this header before hwy/foreach_target.h, so that all sources compile
// the same targets: AVX3 (AVX-512 F/BW/CD/DQ/VL), AVX2 with FMA, and the compiler's baseline.
#pragma once

// Newer x86 targets of newer releases of Highway, whose bits are below AVX3_DL's, would only take
// time to compile: dispatch chooses among those three.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | (HWY_AVX3_DL - 1))
#endif

#include <string>
#include <vector>

namespace tutti::engine {

// Ascending: each includes the ones before it.
enum class Isa { plain, avx2, avx512, avx512_bf16 };

const char* isa_name(Isa isa);
Isa current_isa();
void set_isa(Isa isa);              // throws unsupported when the machine lacks it
std::vector<Isa> available_isas();  // ascending, what this machine has; never empty

// True when dot products of bf16 pairs (VDPBF16PS on 512-bit registers) may be used.
inline bool use_bf16_dot() { return current_isa() == Isa::avx512_bf16; }

}  // namespace tutti::engine
