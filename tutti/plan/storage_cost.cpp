#include "tutti/plan/storage_cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/real.h"
#include "tutti/base/units.h"
#include "tutti/spec/model/params.h"

namespace tutti::plan {
namespace {

// From this vocabulary on a corpus has four bytes per token, as Megatron writes it.
constexpr int64_t kWideTokens = 65500;

double samples_per_second(double bytes, double piece_bytes, double pieces_per_second) {
  return pieces_per_second / (1 + (bytes - 1) / piece_bytes);
}

}  // namespace

StorageForecast forecast_storage(const catalog::Storage& storage, const spec::Recipe& recipe,
                                 const catalog::System& system, double step_seconds) {
  const spec::Mesh& mesh = recipe.parallel;
  const double chips = real(mesh.world());
  const double chips_per_node = std::min(chips, real(system.chips_per_node));
  const double nodes = std::max(1.0, chips / chips_per_node);
  const double dp = real(std::max<int64_t>(1, mesh.dp));
  const spec::ParamTable table = spec::param_table(recipe.model, recipe.lora);
  const double trainable = real(table.trainable_count());
  const double replicated = std::min(1.0, chips_per_node / (chips / dp));
  const double moments = mesh.zero >= 1 ? 1 / nodes : replicated;

  StorageForecast out;
  out.storage = storage.name;
  out.source = storage.source;
  out.save_seconds = 12 * trainable / nodes / storage.checkpoint_save_bytes_per_second();
  out.start_seconds = (4 * real(table.count()) * replicated + 8 * trainable * moments) /
                      storage.checkpoint_load_bytes_per_second();
  const double token_bytes = recipe.model.vocabulary < kWideTokens ? 2 : 4;
  out.sample_bytes = token_bytes * real(recipe.batch.sequence + 1);
  out.needed_samples_per_second =
      real(recipe.batch.global) / step_seconds * std::max(1 / dp, 1 / nodes);
  out.given_samples_per_second = samples_per_second(out.sample_bytes, catalog::kRandomReadBytes,
                                                    storage.figure("random_64k_many_per_second"));
  if (storage.reads_from != "store") {
    out.given_samples_per_second = std::max(
        out.given_samples_per_second,
        samples_per_second(out.sample_bytes, 4096, storage.figure("random_4k_many_per_second")));
  }
  out.feed_factor = std::max(1.0, out.needed_samples_per_second / out.given_samples_per_second);
  return out;
}

std::string verdict_text(const StorageForecast& f) {
  std::string text;
  if (f.starves_feed()) {
    text = fmt::format(
        "{} STARVES THE GPUS: a node needs {:.1f} samples/s and gets {:.1f}, so that it waits for "
        "data {:.0f}% of the time",
        f.storage, f.needed_samples_per_second, f.given_samples_per_second,
        100 * (1 - 1 / f.feed_factor));
  }
  if (f.starves_saves()) {
    text += fmt::format("{} IS TOO SLOW for a checkpoint every {}: one takes {}",
                        text.empty() ? f.storage : "; it", format_seconds(f.interval_seconds),
                        format_seconds(f.save_seconds));
  }
  if (!text.empty()) return text;
  return fmt::format("{} starves no GPU: data take {:.2g}% of what it gives", f.storage,
                     100 * f.needed_samples_per_second / f.given_samples_per_second);
}

Json to_json(const StorageForecast& f) {
  return {{"name", f.storage},
          {"source", f.source},
          {"checkpoint_save_seconds", f.save_seconds},
          {"start_seconds", f.start_seconds},
          {"sample_bytes", f.sample_bytes},
          {"needed_samples_per_second_per_node", f.needed_samples_per_second},
          {"given_samples_per_second_per_node", f.given_samples_per_second},
          {"step_factor", f.feed_factor},
          {"starves_feed", f.starves_feed()},
          {"starves_saves", f.starves_saves()},
          {"verdict", verdict_text(f)}};
}

std::vector<std::pair<std::string, std::string>> describe(const StorageForecast& f) {
  return {{"storage", fmt::format("{} ({})", verdict_text(f), f.source)},
          {"start", fmt::format("{} to load the state", format_seconds(f.start_seconds))}};
}

}  // namespace tutti::plan
