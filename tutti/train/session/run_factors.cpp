#include "tutti/train/session/run_factors.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/flat_yaml.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/format.h"
#include "tutti/engine/stream.h"
#include "tutti/node/core_share.h"
#include "tutti/train/session/lineage.h"
#include "tutti/train/step/initial_weights.h"

namespace tutti::train {
namespace {

// What one process of the run and the present have to say about a factor.
struct Findings {
  std::vector<std::string> differences;
  std::vector<std::string> unknown;

  // A value that an older version did not record is empty.
  template <typename Value>
  void compare(const std::string& what, const Value& was, const Value& is) {
    if (was == is) return;
    if (was == Value{}) unknown.push_back(fmt::format("{}: not recorded by the run", what));
    else differences.push_back(fmt::format("{}: {} in the run, {} now", what, was, is));
  }
};

// Keys that other factors judge: by content, or by what they come to.
bool judged_elsewhere(const std::string& key) {
  return key == "threads" || starts_with(key, "data.train") ||
         key == "checkpoint.initialize_from" || key == "distill.teacher";
}

// Entries of lists have one key several times.
std::map<std::string, std::string> arithmetic_keys(const std::string& yaml) {
  std::map<std::string, std::string> keys;
  for (const auto& [key, value] : flatten_yaml(yaml)) {
    if (free_of_arithmetic(key) || judged_elsewhere(key)) continue;
    std::string& all = keys[key];
    all += (all.empty() ? "" : " ") + value;
  }
  return keys;
}

Findings compare_recipe(const RunPartRecord& was, const RunPartRecord& is) {
  Findings findings;
  if (was.recipe_yaml.empty()) {
    findings.unknown.emplace_back(
        "the run recorded no second copy of recipe.yaml: an edit cannot be detected");
    return findings;
  }
  std::map<std::string, std::string> before;
  try {
    // Read by this version, so that keys it added since have their defaults in both.
    before = arithmetic_keys(
        spec::to_yaml(spec::parse_recipe(was.recipe_yaml, "the recorded recipe", {}, "")));
  } catch (const Error& error) {
    findings.unknown.push_back(fmt::format("not readable by this version: {}", error.what()));
    return findings;
  }
  auto now = arithmetic_keys(is.recipe_yaml);
  for (const auto& [key, value] : before) {
    const auto found = now.find(key);
    const std::string other = found == now.end() ? "none" : found->second;
    if (other != value) {
      findings.differences.push_back(fmt::format("{}: {} in the run, {} now", key, value, other));
    }
    now.erase(key);
  }
  for (const auto& [key, value] : now) {
    findings.differences.push_back(fmt::format("{}: none in the run, {} now", key, value));
  }
  return findings;
}

std::vector<telemetry::CorpusDescribed> of_role(const RunPartRecord& part, const char* role) {
  std::vector<telemetry::CorpusDescribed> out;
  std::copy_if(part.corpora.begin(), part.corpora.end(), std::back_inserter(out),
               [&](const auto& corpus) { return corpus.role == role; });
  return out;
}

Findings compare_data(const RunPartRecord& was, const RunPartRecord& is) {
  Findings findings;
  for (const char* role : {"training", "validation"}) {
    const auto before = of_role(was, role);
    const auto now = of_role(is, role);
    if (before.size() != now.size()) {
      findings.compare(fmt::format("number of {} corpora", role), before.size(), now.size());
      continue;
    }
    for (size_t i = 0; i < now.size(); ++i) {
      const auto name = [&](const char* what) {
        return fmt::format("{} of {} corpus '{}'", what, role, now[i].path);
      };
      findings.compare(name("tokens"), before[i].tokens, now[i].tokens);
      findings.compare(name("documents"), before[i].documents, now[i].documents);
      findings.compare(name("hash of the tokens"), before[i].hash, now[i].hash);
      findings.compare(name("hash of the index"), before[i].index_hash, now[i].index_hash);
      // Without an index hash the corpus was described by a version that knew no masks here.
      if (!before[i].index_hash.empty() && before[i].mask_hash != now[i].mask_hash) {
        findings.differences.push_back(name("loss mask") + ": another one than in the run");
      }
      findings.compare(name("tokenizer"), before[i].tokenizer_hash, now[i].tokenizer_hash);
    }
  }
  return findings;
}

Findings compare_weights(const RunPartRecord& was, const RunPartRecord& is) {
  Findings findings;
  const auto hash = [](const RunPartRecord& part) {
    return part.initial_weights ? part.initial_weights->manifest_xxh3 : std::string();
  };
  // A process that resumed took nothing from them.
  if (was.first_step == 0) {
    findings.compare("hash of the initial checkpoint's manifest", hash(was), hash(is));
  }
  return findings;
}

Findings compare_teacher(const RunPartRecord& was, const RunPartRecord& is) {
  Findings findings;
  const auto hash = [](const RunPartRecord& part) {
    return part.teacher ? part.teacher->manifest_xxh3 : std::string();
  };
  findings.compare("hash of the teacher's manifest", hash(was), hash(is));
  return findings;
}

Findings compare_threads(const RunPartRecord& was, const RunPartRecord& is) {
  Findings findings;
  findings.compare("threads", was.machine->threads, is.machine->threads);
  return findings;
}

Findings compare_machine(const RunPartRecord& was, const RunPartRecord& is) {
  Findings findings;
  findings.compare("processor", was.machine->cpu, is.machine->cpu);
  findings.compare("instruction set", was.machine->instruction_set, is.machine->instruction_set);
  findings.compare("cores", was.machine->cores, is.machine->cores);
  return findings;
}

std::set<std::string> library_set(const std::string& libraries) {
  std::set<std::string> out;
  for (const std::string_view entry : split(libraries, ',')) out.emplace(trim(entry));
  return out;
}

Findings compare_program(const RunPartRecord& was, const RunPartRecord& is) {
  const telemetry::MachineDescribed& before = *was.machine;
  const telemetry::MachineDescribed& now = *is.machine;
  Findings findings;
  findings.compare("version", before.version, now.version);
  findings.compare("hash of the executable", before.executable_hash, now.executable_hash);
  if (before.libraries == now.libraries) return findings;
  if (before.libraries.empty()) {
    findings.unknown.emplace_back("libraries: not recorded by the run");
    return findings;
  }
  const auto old = library_set(before.libraries);
  const auto fresh = library_set(now.libraries);
  const auto only = [](const auto& a, const auto& b) {
    std::vector<std::string> out;
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
    return out.empty() ? "none" : join(out, ", ");
  };
  findings.differences.push_back(
      fmt::format("libraries: {} in the run, {} now", only(old, fresh), only(fresh, old)));
  return findings;
}

using Comparison = Findings (*)(const RunPartRecord&, const RunPartRecord&);

Factor judge(const char* name, const RunRecord& record, const RunPartRecord& now,
             Comparison compare, bool of_machine) {
  Factor factor;
  factor.name = name;
  std::vector<std::pair<int64_t, Findings>> by_part;
  for (const RunPartRecord& part : record.parts) {
    Findings findings;
    if (of_machine && !part.machine) {
      findings.unknown.emplace_back("not recorded by the run");
    } else {
      findings = compare(part, now);
    }
    by_part.emplace_back(part.first_step, std::move(findings));
  }
  // A line that holds for every process stands alone, another one with the steps it holds from.
  const auto collect = [&](std::vector<std::string> Findings::*member) {
    for (const auto& [first_step, findings] : by_part) {
      for (const std::string& line : findings.*member) {
        const bool everywhere = std::all_of(by_part.begin(), by_part.end(), [&](const auto& part) {
          const auto& lines = part.second.*member;
          return std::find(lines.begin(), lines.end(), line) != lines.end();
        });
        const std::string text =
            everywhere ? line
                       : fmt::format("{} (in the process from step {} on)", line, first_step + 1);
        if (std::find(factor.details.begin(), factor.details.end(), text) == factor.details.end()) {
          factor.details.push_back(text);
        }
      }
    }
  };
  collect(&Findings::differences);
  if (!factor.details.empty()) {
    factor.state = FactorState::differs;
    return factor;
  }
  collect(&Findings::unknown);
  if (!factor.details.empty()) factor.state = FactorState::unknown;
  return factor;
}

telemetry::CorpusDescribed read_corpus(FileSystem& files, const char* role,
                                       const std::string& prefix,
                                       const std::function<void(int64_t)>& on_bytes) {
  const data::Corpus corpus(files, prefix);
  telemetry::CorpusDescribed described = describe_corpus(files, role, prefix, corpus);
  constexpr size_t kPieceBytes = size_t{8} << 20;
  const std::string_view bytes = corpus.bin_bytes();
  Hasher hasher;
  for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    const std::string_view piece = bytes.substr(at, kPieceBytes);
    hasher.update(piece.data(), piece.size());
    on_bytes(static_cast<int64_t>(piece.size()));
  }
  described.hash = hash_hex(hasher.digest());
  described.bytes = static_cast<int64_t>(bytes.size());
  return described;
}

}  // namespace

bool free_of_arithmetic(const std::string& key) {
  // A blend of corpora has keys below data.validation.
  if (key == "train.steps" || key == "train.target_loss" || starts_with(key, "data.validation")) {
    return true;
  }
  if (starts_with(key, "data.prepare.")) return true;  // what came of it is data.train
  if (key == "data.cache" || key == "data.cache_bytes") return true;
  if (key == "checkpoint.initialize_from") return false;
  for (const char* section :
       {"checkpoint.", "evaluate.", "run.", "recompute.", "offload.", "telemetry.", "mlperf."}) {
    if (starts_with(key, section)) return true;
  }
  return false;
}

const char* factor_state_name(FactorState state) {
  switch (state) {
    case FactorState::same: return "same";
    case FactorState::differs: return "differs";
    case FactorState::unknown: break;
  }
  return "unknown";
}

RunPartRecord describe_now(FileSystem& files, const spec::Recipe& recipe,
                           const std::function<void(int64_t, int64_t)>& on_progress) {
  RunPartRecord now;
  now.recipe_yaml = spec::to_yaml(recipe);
  std::vector<std::pair<const char*, std::string>> corpora;
  for (const auto& corpus : recipe.data.train.corpora) {
    corpora.emplace_back("training", corpus.prefix);
  }
  for (const auto& corpus : recipe.data.validation.corpora) {
    corpora.emplace_back("validation", corpus.prefix);
  }
  int64_t total_bytes = 0;
  for (const auto& [role, prefix] : corpora) {
    if (!data::corpus_exists(files, prefix)) {
      const data::CorpusPaths paths = data::corpus_paths(prefix);
      fail(ErrorKind::not_found,
           "the {} corpus '{}' of the run is missing: no '{}' with '{}'; put it back, start "
           "from the folder in which the run was started, or name a copy: data.{}=PREFIX",
           role, prefix, paths.bin, paths.idx,
           std::string_view(role) == "training" ? "train" : "validation");
    }
    total_bytes += files.size_bytes(data::corpus_paths(prefix).bin);
  }
  int64_t done_bytes = 0;
  for (const auto& [role, prefix] : corpora) {
    now.corpora.push_back(read_corpus(files, role, prefix, [&](int64_t bytes) {
      done_bytes += bytes;
      if (on_progress) on_progress(done_bytes, total_bytes);
    }));
  }
  if (!recipe.checkpoint.initialize_from.empty()) {
    now.initial_weights = base_of(files, find_weights(files, recipe.checkpoint.initialize_from));
  }
  if (recipe.distill.enabled()) {
    now.teacher = base_of(files, find_weights(files, recipe.distill.teacher, "distill.teacher"));
  }
  // Of several ranks each has its share of the cores (launch/cores.h).
  const int64_t ranks = recipe.parallel.world();
  const int share = static_cast<int>(node::share_cores(0, ranks).cores.size());
  const int threads = recipe.threads > 0 || ranks == 1 ? recipe.threads : share;
  now.machine = machine_described(recipe, *engine::make_cpu_stream(threads));
  if (ranks > 1 && node::may_use_all_cores()) now.machine->cores = share;
  return now;
}

std::vector<Factor> compare_factors(const RunRecord& record, const RunPartRecord& now) {
  std::vector<Factor> factors;
  factors.push_back(judge("recipe", record, now, compare_recipe, false));
  factors.push_back(judge("data", record, now, compare_data, false));
  const bool from_weights =
      now.initial_weights || std::any_of(record.parts.begin(), record.parts.end(),
                                         [](const auto& part) { return part.initial_weights; });
  if (from_weights) {
    factors.push_back(judge("initial weights", record, now, compare_weights, false));
  }
  if (now.teacher) factors.push_back(judge("teacher", record, now, compare_teacher, false));
  factors.push_back(judge("threads", record, now, compare_threads, true));
  factors.push_back(judge("machine", record, now, compare_machine, true));
  factors.push_back(judge("program", record, now, compare_program, true));
  return factors;
}

}  // namespace tutti::train
