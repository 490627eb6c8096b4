// The instruction set of the CPU kernels. Kernels written with Highway are compiled for the targets
// below and dispatch at run time; code with other intrinsics checks use_bf16_dot().
//
// A Highway source includes this header before hwy/foreach_target.h, so that all sources compile
// the same targets: AVX3 (AVX-512 F/BW/CD/DQ/VL), AVX2 with FMA, and the compiler's baseline.
#pragma once

// Disables the newer x86 targets of later Highway releases, whose bits are below that of AVX3_DL:
// dispatch chooses among those three, so others would only cost compile time.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | (HWY_AVX3_DL - 1))
#endif

#include <string>
#include <vector>

namespace tutti::engine {

// Ascending: each includes the previous ones.
enum class Isa { plain, avx2, avx512, avx512_bf16 };

const char* isa_name(Isa isa);
Isa current_isa();
void set_isa(Isa isa);              // throws unsupported if the machine lacks it
std::vector<Isa> available_isas();  // those of this machine, ascending; never empty

// Whether dot products of bf16 pairs (VDPBF16PS on 512-bit registers) may be used.
inline bool use_bf16_dot() { return current_isa() == Isa::avx512_bf16; }

}  // namespace tutti::engine
