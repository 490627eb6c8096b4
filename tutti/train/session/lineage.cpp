#include "tutti/train/session/lineage.h"

#include <algorithm>

#include "tutti/base/binary.h"
#include "tutti/base/error.h"
#include "tutti/base/fetched_file.h"
#include "tutti/base/hash.h"
#include "tutti/base/json.h"
#include "tutti/base/machine.h"
#include "tutti/data/corpus/format.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/telemetry/event_reader.h"
#include "tutti_version.h"

namespace tutti::train {
namespace {

// The JSON object in a file; an empty one when there is none.
Json read_object(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return Json::object();
  try {
    Json value = parse_json(read_file(files, path), path);
    return value.is_object() ? value : Json::object();
  } catch (const Error&) {
    return Json::object();
  }
}

std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string file_hash(FileSystem& files, const std::string& path) {
  return files.exists(path) ? hash_hex(hash_text(files.map(path)->bytes())) : std::string();
}

int64_t count(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// Of bytes here and there: two corpora of as many tokens differ in some of them, and a large one
// is neither read through nor fetched at every start.
std::string pieces_hash(FileSystem& files, const std::string& path) {
  constexpr size_t kPieces = 64;
  constexpr size_t kPieceBytes = 4096;
  if (!files.exists(path)) return {};
  const auto file = map_on_demand(files, path);
  const std::string_view bytes = file->bytes();
  const size_t last = bytes.size() > kPieceBytes ? bytes.size() - kPieceBytes : 0;
  std::vector<std::string_view> pieces;
  std::vector<FetchRange> ranges;
  for (size_t i = 0; i < kPieces; ++i) {
    const size_t offset = last * i / (kPieces - 1);
    pieces.push_back(bytes.substr(offset, kPieceBytes));
    ranges.push_back(
        {file.get(), static_cast<int64_t>(offset), static_cast<int64_t>(pieces.back().size())});
  }
  fetch(ranges);
  Hasher hasher;
  for (const std::string_view piece : pieces) hasher.update(piece.data(), piece.size());
  return hash_hex(hasher.digest());
}

std::string identity_text(const Json& corpus) {
  const std::string hash = text(corpus, "bin_xxh3");
  const std::string pieces = text(corpus, "pieces_xxh3");
  return fmt::format("{} tokens in {} documents{}{}", count(corpus, "tokens"),
                     count(corpus, "documents"), hash.empty() ? "" : ", XXH3 " + hash,
                     pieces.empty() ? "" : ", XXH3 of pieces " + pieces);
}

}  // namespace

telemetry::CorpusDescribed describe_corpus(FileSystem& files, const std::string& role,
                                           const std::string& prefix, const data::Corpus& corpus) {
  const data::CorpusPaths paths = data::corpus_paths(prefix);
  const Json meta = read_object(files, paths.meta);
  telemetry::CorpusDescribed event;
  event.role = role;
  event.path = prefix;
  event.tokens = corpus.tokens();
  event.documents = corpus.documents();
  event.bytes = count(meta, "bin_bytes");
  event.hash = text(meta, "bin_xxh3");
  event.tokenizer = text(meta, "tokenizer");
  event.vocabulary_size = count(meta, "vocabulary_size");
  event.created = text(meta, "created");
  event.licence = text(meta, "licence");
  event.data_class = text(meta, "data_class");
  // A source is a path, or an object with more about it.
  const auto sources = meta.find("sources");
  if (sources != meta.end() && sources->is_array()) {
    for (const Json& source : *sources) {
      if (source.is_string()) {
        event.sources.emplace_back().path = source.get<std::string>();
      } else if (source.is_object()) {
        event.sources.push_back(telemetry::corpus_source_from_json(source));
      }
    }
  }
  event.tokenizer_hash = file_hash(files, paths.tokenizer);
  event.index_hash = hash_hex(hash_text(corpus.idx_bytes()));
  event.mask_hash = file_hash(files, paths.mask);
  return event;
}

Json identify_corpora(FileSystem& files, const data::Dataset& set) {
  Json corpora = Json::array();
  for (size_t i = 0; i < set.corpora(); ++i) {
    const data::Corpus& corpus = set.corpus(i);
    const data::CorpusPaths paths = data::corpus_paths(corpus.prefix());
    Json one = {{"tokens", corpus.tokens()},
                {"documents", corpus.documents()},
                {"bin_xxh3", text(read_object(files, paths.meta), "bin_xxh3")}};
    if (one["bin_xxh3"] == "") one["pieces_xxh3"] = pieces_hash(files, paths.bin);
    corpora.push_back(std::move(one));
  }
  return corpora;
}

void check_same_corpora(const Json& saved, const Json& now, const data::Dataset& set,
                        const std::string& run_folder) {
  if (!saved.is_array()) return;
  for (size_t i = 0; i < std::min(saved.size(), now.size()); ++i) {
    const auto same = [&](const char* key) { return count(saved[i], key) == count(now[i], key); };
    const auto same_hash = [&](const char* key) {
      const std::string before = text(saved[i], key);
      const std::string after = text(now[i], key);
      return before.empty() || after.empty() || before == after;
    };
    if (same("tokens") && same("documents") && same_hash("bin_xxh3") && same_hash("pieces_xxh3")) {
      continue;
    }
    fail(ErrorKind::usage,
         "data.train: '{}' is not the corpus that the run in '{}' has learned from: that had {}, "
         "this has {}. Put the old one back, or start a new run: another --run or run.name",
         set.corpus(i).prefix(), run_folder, identity_text(saved[i]), identity_text(now[i]));
  }
}

telemetry::MachineDescribed machine_described(const spec::Recipe& recipe,
                                              const engine::Stream& stream) {
  const Machine machine = describe_machine();
  const Binary binary = describe_binary();
  telemetry::MachineDescribed machine_event;
  machine_event.host = machine.host;
  machine_event.cpu = machine.cpu;
  machine_event.cores = machine.cores;
  machine_event.threads = stream.threads();
  machine_event.clock_hz = machine.clock_hz;
  machine_event.memory_bytes = machine.memory_bytes;
  machine_event.instruction_set = engine::cpu_isa();
  machine_event.precision = spec::name_of(spec::kPrecisionNames, recipe.precision);
  machine_event.version = TUTTI_VERSION;
  machine_event.executable_hash = binary.executable_hash;
  machine_event.libraries = binary.libraries;
  return machine_event;
}

telemetry::TeacherDescribed describe_teacher(const spec::Recipe& recipe,
                                             const checkpoint::Teacher& teacher) {
  telemetry::TeacherDescribed out;
  out.path = teacher.checkpoint.path;
  out.step = teacher.step;
  out.manifest_hash = teacher.checkpoint.manifest_xxh3;
  out.model = recipe.distill.model->name;
  out.parameters = spec::param_table(*recipe.distill.model).count();
  out.temperature = recipe.distill.temperature;
  out.weight = recipe.distill.weight;
  return out;
}

}  // namespace tutti::train
