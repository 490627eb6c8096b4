#include "tutti/engine/cpu/isa.h"

#include <hwy/targets.h>

#include <atomic>
#include <cstdlib>
#include <dnnl.hpp>

#include "tutti/base/error.h"
#include "tutti/engine/stream.h"

namespace tutti::engine {
namespace {

Isa parse_isa(const std::string& name) {
  for (const Isa isa : {Isa::plain, Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
    if (name == isa_name(isa)) return isa;
  }
  fail(ErrorKind::usage, "unknown instruction set '{}': use avx512_bf16, avx512, avx2 or plain",
       name);
}

int64_t highway_targets(Isa isa) {
  switch (isa) {
    case Isa::plain: return HWY_STATIC_TARGET;
    case Isa::avx2: return HWY_AVX2 | HWY_STATIC_TARGET;
    default: return HWY_AVX3 | HWY_AVX2 | HWY_STATIC_TARGET;
  }
}

void apply(Isa isa) {
  hwy::SetSupportedTargetsForTest(highway_targets(isa));
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

dnnl::cpu_isa onednn_isa(Isa isa) {
  switch (isa) {
    case Isa::plain: return dnnl::cpu_isa::sse41;
    case Isa::avx2: return dnnl::cpu_isa::avx2;
    case Isa::avx512: return dnnl::cpu_isa::avx512_core;
    default: return dnnl::cpu_isa::avx512_core_bf16;
  }
}

Isa check_available(Isa isa) {
  const Isa best = available_isas().back();
  if (isa > best) {
    fail(ErrorKind::unsupported, "this machine does not support {}: its best instruction set is {}",
         isa_name(isa), isa_name(best));
  }
  return isa;
}

Isa initial_isa() {
  const char* forced = std::getenv("TUTTI_CPU_ISA");
  const Isa isa = forced == nullptr ? available_isas().back() : check_available(parse_isa(forced));
  // Effective only before oneDNN's first primitive, so a later set_isa() does not affect oneDNN.
  if (forced != nullptr) dnnl::set_max_cpu_isa(onednn_isa(isa));
  apply(isa);
  return isa;
}

std::atomic<Isa>& chosen_isa() {
  static std::atomic<Isa> isa = initial_isa();
  return isa;
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::plain: return "plain";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_bf16: return "avx512_bf16";
  }
  return "";
}

std::vector<Isa> available_isas() {
  static const std::vector<Isa> isas = [] {
    std::vector<Isa> found = {Isa::plain};
    const int64_t targets = hwy::SupportedTargets();
    if ((targets & HWY_AVX2) != 0) found.push_back(Isa::avx2);
    if ((targets & HWY_AVX3) != 0) {
      found.push_back(Isa::avx512);
      if (__builtin_cpu_supports("avx512bf16") != 0) found.push_back(Isa::avx512_bf16);
    }
    return found;
  }();
  return isas;
}

Isa current_isa() { return chosen_isa().load(std::memory_order_relaxed); }

void set_isa(Isa isa) {
  check_available(isa);
  chosen_isa().store(isa);
  apply(isa);
}

std::string cpu_isa() { return isa_name(current_isa()); }

void select_cpu_isa(const std::string& name) { set_isa(parse_isa(name)); }

}  // namespace tutti::engine
