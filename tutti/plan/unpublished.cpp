#include "tutti/plan/unpublished.h"

#include "tutti/base/error.h"

namespace tutti::plan {
namespace {

// Layouts over all GPUs of `recipe`: tensor and context parallel within eight GPUs.
std::vector<spec::Recipe> all_layouts(const spec::Recipe& recipe) {
  std::vector<spec::Recipe> out;
  const int64_t gpus = recipe.parallel.world();
  for (const int64_t tp : {1, 2, 4, 8}) {
    for (const int64_t cp : {1, 2, 4, 8}) {
      for (const int64_t pp : {1, 2, 4, 8, 16}) {
        if (tp * cp > 8 || gpus % (tp * cp * pp) != 0) continue;
        spec::Recipe next = recipe;
        next.parallel.tp = tp;
        next.parallel.cp = cp;
        next.parallel.pp = pp;
        next.parallel.dp = gpus / (tp * cp * pp);
        try {
          spec::resolve(next);
          spec::validate(next);
        } catch (const Error&) {
          continue;
        }
        out.push_back(std::move(next));
      }
    }
  }
  return out;
}

}  // namespace

std::vector<spec::Recipe> unpublished_choices(const Measurement& row) {
  std::vector<spec::Recipe> out = {row.recipe};
  for (const std::string& name : row.free) {
    if (name == "layout") {
      out = all_layouts(row.recipe);
      continue;
    }
    std::vector<spec::Recipe> grown;
    for (const spec::Recipe& recipe : out) {
      for (const int64_t value : {1, 2, 3, 4, 6, 8, 12, 16}) {
        spec::Recipe next = recipe;
        if (name == "micro_batch") {
          next.batch.micro = value;
        } else {
          next.parallel.vpp = value;
        }
        try {
          spec::validate(next);
        } catch (const Error&) {
          continue;
        }
        grown.push_back(std::move(next));
      }
    }
    out = std::move(grown);
  }
  return out;
}

}  // namespace tutti::plan
