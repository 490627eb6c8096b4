// What a session reports at its end.
#include <fmt/format.h>

#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/train/session/session.h"

namespace tutti::train {
namespace {

std::string percent_of(double share, double peak, const char* name) {
  if (peak == 0) return fmt::format("{} not known", name);
  return fmt::format("{:.1f}% of {} {:.0f} GFLOP/s", 100 * share, name, peak / 1e9);
}

std::optional<double> joules_per_token(const Summary& s) {
  if (!s.energy_joules || s.session_tokens == 0) return std::nullopt;
  return *s.energy_joules / static_cast<double>(s.session_tokens);
}

}  // namespace

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::target_reached: return "target_reached";
    case Outcome::steps_done: return "steps_done";
    case Outcome::stopped: return "stopped";
    case Outcome::over_budget: return "over_budget";
  }
  return "unknown";
}

Json to_json(const Summary& s) {
  Json memory = Json::object();
  for (const MemoryByKind& part : s.memory) memory[part.kind + "_bytes"] = part.bytes;
  Json out = Json{
      {"outcome", outcome_name(s.outcome)},
      {"reached_target", s.reached_target},
      {"time_to_target_seconds", s.reached_target ? Json(s.time_to_target_seconds) : Json(nullptr)},
      {"train_seconds", s.train_seconds},
      {"steps", s.steps},
      {"tokens", s.tokens},
      {"skipped_steps", s.skipped_steps},
      {"final_loss", s.final_loss},
      {"validation_loss", s.validation_loss ? Json(*s.validation_loss) : Json(nullptr)},
      {"tokens_per_second", s.tokens_per_second},
      {"useful_token_share", s.useful_token_share},
      {"target_share", s.target_share},
      {"model_flops_per_token", s.model_flops_per_token},
      {"mfu_formula", s.mfu_formula},
      {"mfu_of_gemm_peak", s.mfu_of_gemm_peak},
      {"gemm_peak_flops", s.gemm_peak_flops},
      {"mfu_of_nominal_peak", s.mfu_of_nominal_peak},
      {"nominal_peak_flops", s.nominal_peak_flops},
      {"checkpoints", s.checkpoints},
      {"checkpoint_stall_seconds", s.checkpoint_stall_seconds},
      {"data_wait_seconds", s.data_wait_seconds},
      {"energy_joules", s.energy_joules ? Json(*s.energy_joules) : Json(nullptr)},
      {"energy_joules_per_token", joules_per_token(s) ? Json(*joules_per_token(s)) : Json(nullptr)},
      {"energy_source", s.energy_source},
      {"peak_memory_bytes", s.peak_memory_bytes},
      {"memory", memory},
      {"recompute", s.recompute},
      {"recompute_freed_bytes", s.recompute_freed_bytes},
      {"run", s.run_folder},
      {"exit_code", s.exit_code}};
  if (s.ranks.empty()) return out;
  out["mesh"] = s.mesh;
  Json& ranks = out["ranks"] = Json::array();
  for (const RankUse& use : s.ranks) {
    ranks.push_back({{"peak_memory_bytes", use.peak_memory_bytes},
                     {"own_seconds", use.own_seconds},
                     {"waited_seconds", use.waited_seconds}});
  }
  return out;
}

std::string format_summary(const Summary& s) {
  std::vector<std::vector<std::string>> rows;
  const auto row = [&](const char* name, const std::string& value) {
    rows.push_back({name, value});
  };
  row("outcome", outcome_name(s.outcome));
  if (s.reached_target) row("time to target", format_seconds(s.time_to_target_seconds));
  row("training time", format_seconds(s.train_seconds) + " in this session, evaluation included");
  row("steps", fmt::format("{} ({} skipped as non-finite)", s.steps, s.skipped_steps));
  std::string tokens = format_count(static_cast<double>(s.tokens)) + " tokens";
  if (s.useful_token_share < 1) {
    tokens += fmt::format("; {:.2f}% of the rows of steps, the rest is padding",
                          100 * s.useful_token_share);
  }
  if (s.target_share < 1) {
    tokens += fmt::format("; {:.2f}% of them trained on, the rest is masked", 100 * s.target_share);
  }
  row("tokens", tokens);
  row("loss", fmt::format("{:.4f} (last step)", s.final_loss));
  if (s.validation_loss)
    row("validation loss", fmt::format("{:.4f} (last evaluation)", *s.validation_loss));
  row("speed", format_rate(s.tokens_per_second, "tokens"));
  row("MFU", percent_of(s.mfu_of_gemm_peak, s.gemm_peak_flops, "measured GEMM peak") + "; " +
                 percent_of(s.mfu_of_nominal_peak, s.nominal_peak_flops, "nominal peak"));
  row("MFU formula", s.mfu_formula);
  std::string kinds;
  for (const MemoryByKind& part : s.memory) {
    kinds += (kinds.empty() ? "" : ", ") + part.kind + " " +
             format_bytes(static_cast<double>(part.bytes));
  }
  row("memory", format_bytes(static_cast<double>(s.peak_memory_bytes)) + " peak resident");
  for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
    const RankUse& use = s.ranks[rank];
    const double steps = use.own_seconds + use.waited_seconds;
    row(rank == 0 ? "ranks" : "",
        fmt::format("{}{}: {} peak resident, {:.0f}% of the steps waiting",
                    rank == 0 ? s.mesh + "; " : "", rank,
                    format_bytes(static_cast<double>(use.peak_memory_bytes)),
                    steps > 0 ? 100 * use.waited_seconds / steps : 0));
  }
  row("arenas", kinds);
  if (s.recompute_freed_bytes > 0) {
    row("recompute", fmt::format("{}: {} less", s.recompute,
                                 format_bytes(static_cast<double>(s.recompute_freed_bytes))));
  }
  row("checkpoints", fmt::format("{}, training waited {} for them", s.checkpoints,
                                 format_seconds(s.checkpoint_stall_seconds)));
  if (const auto each = joules_per_token(s)) {
    row("energy", fmt::format("{:.3g} J per token, {:.3g} kWh in this session ({})", *each,
                              *s.energy_joules / 3.6e6, s.energy_source));
  }
  row("data", fmt::format("training waited {} for it", format_seconds(s.data_wait_seconds)));
  row("run folder", s.run_folder);
  return format_table(rows);
}

}  // namespace tutti::train
