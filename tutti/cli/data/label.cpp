#include "tutti/cli/data/label.h"

#include <fmt/format.h>

#include <array>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/control/jobs/data_rule.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/format.h"
#include "tutti/launch/home.h"
#include "tutti/launch/prepared_data.h"
#include "tutti/object/uri.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::cli {
namespace {

using control::DataClass;

std::string text_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<DataClass> known_class(const std::string& name) {
  if (name.empty()) return std::nullopt;
  try {
    return control::parse_data_class(name);
  } catch (const Error&) {
    return std::nullopt;  // not one of the known classes
  }
}

// Of a run folder or one of its checkpoint folders: the run.
std::string run_with(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return checkpoint::parse_step_folder_name(base_name(path)) ? parent_path(parent_path(path))
                                                             : path;
}

// Gathers what everything says.
class LabelSearch {
 public:
  LabelSearch(FileSystem& files, std::string folder) : files_(files), folder_(std::move(folder)) {}

  void add_recipe(const spec::Recipe& recipe) {
    label_.data_class = recipe.run.data_class;
    add_corpora(recipe);
    add_origins(recipe);
  }

  // What is looked for begins with a class that is stated already.
  void begin_with(const std::string& data_class) { label_.data_class = data_class; }

  // A run and everything that it learned from.
  void add_run(const std::string& path, const std::string& what) {
    const std::string run = run_with(at(path));
    if (!runs_.insert(run).second) return;
    const std::string name = fmt::format("{} '{}'", what, path);
    bool says = false;
    spec::Recipe recipe;
    try {
      recipe = train::load_recipe(files_, run);
    } catch (const Error&) {
      add_unlabelled(name);
      return;
    }
    if (const auto stated = known_class(recipe.run.data_class)) {
      add_class(*stated, name);
      says = true;
    }
    // The events record the corpora as the run learned from them.
    if (!add_events(run, name) && !recipe.data.train.empty()) {
      add_corpora(recipe);
    } else if (!says && recipe.data.train.empty()) {
      add_unlabelled(name);
    }
    add_origins(recipe);
  }

  const control::DataLabel& label() const { return label_; }
  const std::vector<Json>& corpora() const { return corpora_; }

 private:
  std::string at(const std::string& path) const {
    const bool is_whole = object::is_uri(path) || (!path.empty() && path.front() == '/');
    return folder_.empty() || is_whole ? path : join_path(folder_, path);
  }

  void add_class(DataClass stated, const std::string& what) {
    if (stated <= control::parse_data_class(label_.data_class)) return;
    label_.data_class = control::data_class_name(stated);
    label_.source = what;
  }

  void add_unlabelled(const std::string& what) {
    if (label_.unlabelled.empty()) label_.unlabelled = what;
  }

  // A corpus, as its description or an event has it.
  void add_description(const Json& object, const std::string& what) {
    const auto own = known_class(text_member(object, "data_class"));
    if (own) add_class(*own, what);
    bool all_say = false;
    const auto sources = object.find("sources");
    if (sources != object.end() && sources->is_array()) {
      all_say = !sources->empty();
      for (const Json& source : *sources) {
        const auto stated =
            source.is_object() ? known_class(text_member(source, "data_class")) : std::nullopt;
        if (stated) add_class(*stated, what);
        all_say = all_say && stated.has_value();
      }
    }
    if (!own && !all_say) add_unlabelled(what);
  }

  void add_corpora(const spec::Recipe& recipe) {
    const auto add = [&](const spec::CorpusBlend& blend, const char* key) {
      for (const spec::CorpusShare& share : blend.corpora) {
        const std::string what = fmt::format("corpus '{}' of {}", share.prefix, key);
        const std::string meta = data::corpus_paths(at(share.prefix)).meta;
        try {
          const Json object =
              files_.exists(meta) ? parse_json(read_file(files_, meta), meta) : Json();
          add_description(object.is_object() ? object : Json::object(), what);
        } catch (const Error&) {
          add_unlabelled(what);
        }
      }
    };
    add(recipe.data.train, "data.train");
    add(recipe.data.validation, "data.validation");
    if (recipe.data.train.empty() && recipe.data.prepare.enabled()) {
      add_unlabelled(fmt::format("text '{}' of data.prepare.source", recipe.data.prepare.source));
    }
  }

  void add_origins(const spec::Recipe& recipe) {
    if (const std::string& base = recipe.checkpoint.initialize_from; !base.empty()) {
      add_run(base, "checkpoint.initialize_from");
    }
    if (recipe.distill.enabled()) add_run(recipe.distill.teacher, "distill.teacher");
  }

  // Whether the run has recorded its corpora.
  bool add_events(const std::string& run, const std::string& what) {
    const std::string path = train::events_path(run);
    if (!files_.exists(path) || files_.size_bytes(path) == 0) return false;
    const auto file = files_.map(path);
    bool found = false;
    for (const std::string_view line : split(file->bytes(), '\n')) {
      // Most lines are steps: they are not parsed.
      const bool is_corpus = line.find("\"corpus_described\"") != std::string_view::npos;
      if (!is_corpus && line.find(kUnlabelledOrigin) == std::string_view::npos) continue;
      try {
        const Json event = parse_json(std::string(line), path);
        if (is_corpus) {
          add_description(event, what);
          keep_corpus(event);
          found = true;
        } else if (const auto details = event.find("details"); details != event.end()) {
          const std::string unlabelled = text_member(*details, kUnlabelledOrigin);
          if (!unlabelled.empty()) add_unlabelled(fmt::format("{}: {}", what, unlabelled));
        }
      } catch (const Error&) {
        add_unlabelled(what);  // torn
      }
    }
    return found;
  }

  // Every session of a run describes its corpora again.
  void keep_corpus(const Json& event) {
    const auto timeless = [](Json corpus) {
      for (const char* key : {"time", "wall_seconds"}) corpus.erase(key);
      return corpus;
    };
    const Json wanted = timeless(event);
    for (const Json& kept : corpora_) {
      if (timeless(kept) == wanted) return;
    }
    corpora_.push_back(event);
  }

  FileSystem& files_;
  std::string folder_;
  control::DataLabel label_;
  std::vector<Json> corpora_;
  std::set<std::string> runs_;
};

bool is_there(FileSystem& files, const spec::CorpusShare& share) {
  return data::corpus_exists(files, share.prefix);
}

}  // namespace

control::DataLabel find_label(FileSystem& files, const spec::Recipe& recipe,
                              const std::string& run_folder, const std::string& folder) {
  LabelSearch search(files, folder);
  search.add_recipe(recipe);
  if (!run_folder.empty() && files.exists(train::recipe_path(run_folder))) {
    search.add_run(run_folder, "the run");
  }
  return search.label();
}

Origins find_origins(FileSystem& files, const std::string& run,
                     const std::vector<std::string>& bases) {
  LabelSearch search(files, "");
  search.begin_with(train::load_recipe(files, run_with(run)).run.data_class);
  search.add_run(run, "the run");
  for (const std::string& base : bases) search.add_run(base, "the base checkpoint");
  return {search.label(), search.corpora()};
}

std::optional<control::DataLabel> label_of_job(FileSystem& files,
                                               const control::JobRequest& request) {
  if (request.deployment) {
    try {
      return find_origins(files, request.deployment->checkpoint, {}).label;
    } catch (const Error&) {
      return std::nullopt;  // as below
    }
  }
  if (request.command.size() < 2 || request.command.front() != "train") return std::nullopt;
  const std::string& path = request.command[1];
  try {
    const spec::Recipe recipe =
        spec::parse_recipe(read_file(files, path), path, {}, launch::models_folder(files));
    return find_label(files, recipe, request.run_folder, request.folder);
  } catch (const Error&) {
    return std::nullopt;  // the launch will say what is wrong with it
  }
}

std::optional<std::string> missing_data(FileSystem& files, const spec::Recipe& given) {
  spec::Recipe recipe = given;
  const spec::PrepareConfig& prepare = given.data.prepare;
  if (recipe.data.train.empty() && prepare.enabled()) {
    if (files.exists(prepare.source)) return std::nullopt;
    try {
      launch::name_corpora(files, recipe, "");  // by its hash: an earlier run may have made them
    } catch (const Error&) {
      recipe.data.train.corpora.clear();
    }
    bool made = !recipe.data.train.corpora.empty();
    for (const spec::CorpusShare& share : recipe.data.train.corpora) {
      made = made && is_there(files, share);
    }
    if (made) return std::nullopt;
    return fmt::format(
        "data.prepare.source: no file '{}' to prepare the corpus from, and no earlier run has "
        "made it; put the file there, or name a corpus with data.train",
        prepare.source);
  }
  const std::array<std::pair<const char*, const spec::CorpusBlend*>, 2> blends = {
      {{"data.train", &recipe.data.train}, {"data.validation", &recipe.data.validation}}};
  for (const auto& [key, blend] : blends) {
    for (const spec::CorpusShare& share : blend->corpora) {
      if (is_there(files, share)) continue;
      return fmt::format(
          "{}: no corpus '{}' ({}.bin and {}.idx); make it with `tutti data prepare TEXT "
          "--out {}`, or name another",
          key, share.prefix, share.prefix, share.prefix, share.prefix);
    }
  }
  return std::nullopt;
}

}  // namespace tutti::cli
