#include "tutti/endpoint/model.h"

#include <algorithm>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/gguf/convert.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/huggingface/import.h"
#include "tutti/checkpoint/huggingface/pack_quantized.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/tokenizers/tokenizer_source.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/tasks/interchange.h"

namespace tutti::endpoint {
namespace {

struct Form {
  DType compute = DType::bf16;
  std::optional<PackKind> pack = {};
};
Form form_of(WeightType weights, DType stored) {
  switch (weights) {
    case WeightType::as_stored: return {stored, {}};
    case WeightType::f32: return {DType::f32, {}};
    case WeightType::bf16: return {DType::bf16, {}};
    case WeightType::int8: return {DType::bf16, PackKind::int8};
    case WeightType::int4: return {DType::bf16, PackKind::int4};
  }
  return {};
}

std::unique_ptr<model::InferenceWeights> make_weights(const spec::ModelConfig& model,
                                                      const spec::LoraConfig& lora,
                                                      const Form& form) {
  return std::make_unique<model::InferenceWeights>(
      model, spec::param_layout(spec::param_table(model, lora)), form.compute, form.pack);
}

// Takes the elements of a parameter as they come, and sets many rows at a time.
class RowSetter {
 public:
  RowSetter(model::InferenceWeights& weights, const spec::PlacedParam& placed)
      : weights_(weights), placed_(placed) {}
  void append(const void* data, int64_t bytes) {
    const auto* values = static_cast<const float*>(data);
    pending_.insert(pending_.end(), values, values + bytes / int64_t{sizeof(float)});
    if (pending_.size() >= kElementsAtOnce) flush();
  }
  void flush() {
    const int64_t columns = placed_.param.shape.back();
    const int64_t whole = static_cast<int64_t>(pending_.size()) / columns * columns;
    weights_.set(placed_, done_, whole, pending_.data());
    done_ += whole;
    pending_.erase(pending_.begin(), pending_.begin() + whole);
  }

 private:
  static constexpr size_t kElementsAtOnce = size_t{1} << 22;
  model::InferenceWeights& weights_;
  const spec::PlacedParam& placed_;
  std::vector<float> pending_;
  int64_t done_ = 0;
};

// config.json or generation_config.json: eos_token_id is a token or a list of them.
void add_stop_tokens(FileSystem& files, const std::string& path, std::vector<int32_t>& out) {
  if (!files.exists(path)) return;
  const Json config = parse_json(read_file(files, path), path);
  if (!config.is_object() || !config.contains("eos_token_id")) return;
  const auto add = [&](const Json& id) {
    if (id.is_number_integer()) out.push_back(id.get<int32_t>());
  };
  const Json& ids = config.at("eos_token_id");
  if (ids.is_array()) {
    for (const Json& id : ids) add(id);
  } else {
    add(ids);
  }
}

bool has_chat_template(FileSystem& files, const std::string& folder) {
  if (files.exists(join_path(folder, "chat_template.jinja"))) return true;
  const std::string path = join_path(folder, "tokenizer_config.json");
  if (!files.exists(path)) return false;
  const Json config = parse_json(read_file(files, path), path);
  return config.is_object() && config.contains("chat_template") &&
         !config.at("chat_template").is_null();
}

// What the files of transformers in these folders, the first that have them, say of conversations.
void read_companions(FileSystem& files, const std::vector<std::string>& folders,
                     LoadedModel& model) {
  for (const std::string& folder : folders) {
    if (model.chat_template == nullptr && has_chat_template(files, folder)) {
      model.chat_template =
          std::make_unique<chat::ChatTemplate>(chat::load_chat_template(files, folder));
    }
    for (const char* name : {"generation_config.json", checkpoint::kHfConfig}) {
      if (model.stop_tokens.empty()) {
        add_stop_tokens(files, join_path(folder, name), model.stop_tokens);
      }
    }
  }
  if (model.tokenizer != nullptr) model.stop_tokens.push_back(model.tokenizer->end_of_document());
  std::sort(model.stop_tokens.begin(), model.stop_tokens.end());
  model.stop_tokens.erase(std::unique(model.stop_tokens.begin(), model.stop_tokens.end()),
                          model.stop_tokens.end());
  std::erase_if(model.stop_tokens,
                [&](int32_t token) { return token < 0 || token >= model.config.vocabulary; });
}

void check_tokenizer(const std::string& path, LoadedModel& model) {
  if (model.tokenizer == nullptr) {
    model.notes.push_back(fmt::format("'{}' has no tokenizer: only tokens can be served", path));
  } else if (model.tokenizer->vocabulary_size() > model.config.vocabulary) {
    fail(ErrorKind::usage, "'{}': the tokenizer has {} tokens and the model {}", path,
         model.tokenizer->vocabulary_size(), model.config.vocabulary);
  }
}

void load_run(FileSystem& files, const std::string& path, WeightType weights, LoadedModel& model) {
  train::LoadedRun run = train::find_run(files, path, false);
  const spec::Recipe& recipe = run.recipe;
  model.step = run.step;
  model.checkpoint = run.checkpoint;
  model.config = recipe.model;
  const DType stored = recipe.precision == spec::Precision::f32 ? DType::f32 : DType::bf16;
  model.weights = make_weights(model.config, recipe.lora, form_of(weights, stored));
  train::read_parameters(
      files, run,
      [&](const spec::PlacedParam& placed, int64_t first, const std::vector<float>& values) {
        model.weights->set(placed, first, static_cast<int64_t>(values.size()), values.data());
      });
  const std::string folder = parent_path(parent_path(run.checkpoint));
  std::vector<std::string> tokenizers = {train::tokenizer_path(folder)};
  for (const spec::CorpusShare& share : recipe.data.train.corpora) {
    tokenizers.push_back(data::corpus_paths(share.prefix).tokenizer);
  }
  for (const std::string& one : tokenizers) {
    if (model.tokenizer != nullptr || !files.exists(one)) continue;
    model.tokenizer = data::load_tokenizer_file(files, one);
  }
  check_tokenizer(path, model);
  read_companions(
      files,
      {train::huggingface_path(folder), data::tokenizer_folder(train::tokenizer_path(folder))},
      model);
}

// The form of a model whose matrices are packed in its files: that, or an error.
Form packed_form(const std::string& path, WeightType weights, PackKind kind) {
  const WeightType same = kind == PackKind::int8 ? WeightType::int8 : WeightType::int4;
  if (weights != WeightType::as_stored && weights != same) {
    fail(ErrorKind::usage,
         "weights: '{}' is quantized to {} already; leave --weights out, or take the run or the "
         "model "
         "that it was made of",
         path, pack_name(kind));
  }
  return {DType::bf16, kind};
}

void read_packed(const checkpoint::HfFolder& folder, const checkpoint::HfModel& hf,
                 const checkpoint::HfParameter& parameter, PackKind kind,
                 model::InferenceWeights& weights) {
  const spec::PlacedParam& placed = weights.layout().find(parameter.name);
  int64_t first = 0;
  for (const checkpoint::HfPart& part : parameter.parts) {
    checkpoint::stream_packed(folder, part, kind, checkpoint::RopeLayout::half, hf.model.head_dim,
                              [&](int64_t rows, const int8_t* numbers, const bf16* scales) {
                                weights.set_packed(placed, first, rows, numbers, scales);
                                first += rows;
                              });
  }
}

void load_huggingface(FileSystem& files, const std::string& path, WeightType weights,
                      std::optional<DType> stored, LoadedModel& model) {
  const checkpoint::HfFolder folder(files, path);
  const checkpoint::HfModel hf = checkpoint::read_hf_config(folder.config(), folder.config_path());
  model.config = hf.model;
  model.family = hf.family;
  model.notes = folder.notes();
  model.notes.insert(model.notes.end(), hf.notes.begin(), hf.notes.end());
  const std::string first = folder.tensor_names().front();
  const DType own = folder.tensor(first).dtype == DType::f32 ? DType::f32 : DType::bf16;
  const Form form =
      hf.packing ? packed_form(path, weights, *hf.packing) : form_of(weights, stored.value_or(own));
  model.weights = make_weights(model.config, {}, form);
  for (const checkpoint::HfParameter& parameter : checkpoint::locate_parameters(folder, hf)) {
    if (const auto kind = checkpoint::packed_kind(folder, hf, parameter)) {
      read_packed(folder, hf, parameter, *kind, *model.weights);
      continue;
    }
    RowSetter rows(*model.weights, model.weights->layout().find(parameter.name));
    checkpoint::stream_parameter(
        folder, hf, parameter, DType::f32, checkpoint::RopeLayout::half,
        [&](const void* data, int64_t bytes) { rows.append(data, bytes); });
    rows.flush();
  }
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const std::string file = join_path(path, name);
    if (model.tokenizer != nullptr || !files.exists(file)) continue;
    data::TokenizerOptions options;
    options.begin = "model";
    try {
      model.tokenizer = data::open_tokenizer(files, file, options);
    } catch (const Error& error) {
      model.notes.emplace_back(error.what());
    }
  }
  const std::string own_tokenizer = join_path(path, train::kOwnTokenizer);
  if (model.tokenizer == nullptr && files.exists(own_tokenizer)) {
    model.tokenizer = data::load_tokenizer_file(files, own_tokenizer);
  }
  check_tokenizer(path, model);
  read_companions(files, {path}, model);
}

// A folder for the time of a conversion.
class ServingFolder {
 public:
  ServingFolder(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {
    if (files.exists(path_)) files.remove_tree(path_);  // of a process that was killed
    files.create_directories(path_);
  }
  ~ServingFolder() {
    try {
      files_.remove_tree(path_);
    } catch (const Error&) {  // what ended the conversion is the error to report
    }
  }
  ServingFolder(const ServingFolder&) = delete;
  ServingFolder& operator=(const ServingFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  FileSystem& files_;
  std::string path_;
};

}  // namespace

int64_t LoadedModel::resident_bytes() const {
  int64_t out = weights->bytes();
  for (const LoadedAdapter& adapter : adapters) out += adapter.weights->bytes();
  return out;
}

const std::vector<std::string>& weight_type_names() {
  static const std::vector<std::string> names = {"as_stored", "bf16", "f32", "int8", "int4"};
  return names;
}

WeightType parse_weight_type(const std::string& name) {
  const std::vector<std::string>& names = weight_type_names();
  const auto at = std::find(names.begin(), names.end(), name);
  if (at != names.end()) return static_cast<WeightType>(at - names.begin());
  fail(ErrorKind::usage, "weights: '{}' is none of {}", name, fmt::join(names, ", "));
}

std::unique_ptr<LoadedModel> load_model(FileSystem& files, const std::string& path,
                                        WeightType weights, int threads) {
  auto model = std::make_unique<LoadedModel>();
  std::string given = path;
  while (given.size() > 1 && given.back() == '/') given.pop_back();
  model->path = path;
  model->name = base_name(given);
  model->threads = threads;
  if (!files.exists(given)) {
    fail(ErrorKind::not_found,
         "'{}' does not exist; give a run folder, a folder of Hugging Face's transformers or a "
         "GGUF file",
         path);
  }
  if (!files.is_directory(given)) {
    if (!checkpoint::is_gguf(files, given)) {
      fail(ErrorKind::usage, "'{}' is no GGUF file; give one, or a folder with a model", path);
    }
    const ServingFolder folder(files, given + ".serving");
    std::vector<std::string> notes = checkpoint::write_folder_of(files, given, folder.path());
    load_huggingface(files, folder.path(), weights, DType::bf16, *model);
    model->notes.insert(model->notes.begin(), notes.begin(), notes.end());
    if (model->name.ends_with(".gguf")) model->name.resize(model->name.size() - 5);
  } else if (!files.exists(train::recipe_path(given)) &&
             files.exists(join_path(given, checkpoint::kHfConfig))) {
    load_huggingface(files, given, weights, {}, *model);
  } else {
    load_run(files, given, weights, *model);
  }
  return model;
}

}  // namespace tutti::endpoint
