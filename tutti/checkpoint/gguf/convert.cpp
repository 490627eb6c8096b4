#include "tutti/checkpoint/gguf/convert.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/pretty_json.h"
#include "tutti/checkpoint/gguf/config.h"
#include "tutti/checkpoint/gguf/file.h"
#include "tutti/checkpoint/gguf/names.h"
#include "tutti/checkpoint/gguf/rope_factors.h"
#include "tutti/checkpoint/gguf/vocabulary.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/huggingface/packing_config.h"
#include "tutti/checkpoint/store/elements.h"
#include "tutti/checkpoint/store/safetensors.h"

namespace tutti::checkpoint {
namespace {

int64_t elements_of_shape(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

// Transposes [rows, columns] to [columns, rows].
std::vector<float> transposed(const std::vector<float>& from, int64_t rows, int64_t columns) {
  std::vector<float> out(from.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      out[static_cast<size_t>(c * rows + r)] = from[static_cast<size_t>(r * columns + c)];
    }
  }
  return out;
}

// Reorders rows of heads: pairs (i, i + half) become neighbours (2 i, 2 i + 1), or back.
std::vector<float> reordered(const std::vector<float>& from, int64_t heads, int64_t rows,
                             bool to_neighbours) {
  const int64_t columns = static_cast<int64_t>(from.size()) / rows;
  const int64_t half = rows / heads / 2;
  std::vector<float> out(from.size());
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < half; ++i) {
      for (int64_t j = 0; j < 2; ++j) {
        const int64_t apart = 2 * head * half + j * half + i;
        const int64_t beside = 2 * head * half + 2 * i + j;
        const int64_t source = to_neighbours ? apart : beside;
        const int64_t target = to_neighbours ? beside : apart;
        std::copy_n(from.begin() + source * columns, columns, out.begin() + target * columns);
      }
    }
  }
  return out;
}

// One tensor of transformers and its form in the file.
struct Plan {
  std::string hf_name;
  GgufPart part;
};

std::vector<float> read_f32(const HfFolder& folder, const std::string& name) {
  const SafetensorsTensor& tensor = folder.tensor(name);
  std::vector<float> values(static_cast<size_t>(elements_of_shape(tensor.shape)));
  convert_elements(tensor.dtype, folder.bytes(name).data(), DType::f32, values.data(),
                   static_cast<int64_t>(values.size()), folder.file_of(name) + ": '" + name + "'");
  return values;
}

std::vector<float> to_gguf(const Plan& plan, const std::vector<int64_t>& shape,
                           std::vector<float> values) {
  if (plan.part.transposed) values = transposed(values, shape[0], shape[1]);
  if (plan.part.heads > 0) values = reordered(values, plan.part.heads, shape[0], true);
  if (plan.part.plus_one) {
    for (float& value : values) value += 1.0F;
  }
  return values;
}

GgufType type_in_file(const std::vector<int64_t>& shape, GgufType wanted, int64_t& plain) {
  if (shape.size() < 2) return GgufType::f32;
  if (!is_blocked(wanted) || shape.back() % kGgufBlock == 0) return wanted;
  ++plain;
  return GgufType::f16;
}

int64_t heads_of(const Json& config) {
  return config.value("num_attention_heads", config.value("n_head", int64_t{1}));
}

std::vector<Plan> plan_export(const HfFolder& folder, GgufArchitecture architecture) {
  const int64_t heads = heads_of(folder.config());
  const int64_t kv_heads = folder.config().value("num_key_value_heads", heads);
  std::vector<Plan> plans;
  for (const std::string& name : folder.tensor_names()) {
    auto part = gguf_part(architecture, name, heads, kv_heads);
    if (!part) {
      fail(ErrorKind::unsupported, "{}: tensor '{}' has no name in GGUF files of architecture {}",
           folder.path(), name, gguf_architecture_name(architecture));
    }
    plans.push_back({name, std::move(*part)});
  }
  // A head that repeats tied embeddings.
  if (folder.config().value("tie_word_embeddings", false)) {
    plans.erase(std::remove_if(plans.begin(), plans.end(),
                               [](const Plan& plan) { return plan.part.name == "output.weight"; }),
                plans.end());
  }
  return plans;
}

constexpr std::pair<GgufType, int64_t> kFileTypes[] = {
    {GgufType::f32, 0},
    {GgufType::f16, 1},
    {GgufType::q4_0, 2},
    {GgufType::q8_0, 7},
    {GgufType::bf16, 32}};  // llama.cpp's enumeration

void append_general(const GgufOptions& options, GgufMetadata& metadata) {
  metadata.emplace_back("general.type", gguf_text("model"));
  metadata.emplace_back("general.name", gguf_text(options.name));
  for (const auto& [type, stored] : kFileTypes) {
    if (type == options.type) metadata.emplace_back("general.file_type", gguf_u32(stored));
  }
  if (is_blocked(options.type)) metadata.emplace_back("general.quantization_version", gguf_u32(2));
}

// A tensor of the file in the form of transformers.
struct Source {
  const GgufTensor* tensor;
  GgufPart part;
  SafetensorsTensor target;
};

std::vector<float> from_gguf(const GgufFile& file, const Source& source) {
  const GgufTensor& tensor = *source.tensor;
  std::vector<float> values(static_cast<size_t>(elements_of_shape(tensor.shape)));
  decode_gguf(tensor.type, file.bytes(tensor).data(), static_cast<int64_t>(values.size()),
              values.data(), "'" + file.path() + "': tensor '" + tensor.name + "'");
  if (source.part.transposed) values = transposed(values, tensor.shape[0], tensor.shape[1]);
  if (source.part.heads > 0) values = reordered(values, source.part.heads, tensor.shape[0], false);
  if (source.part.plus_one) {
    for (float& value : values) value -= 1.0F;
  }
  return values;
}

DType dtype_of(GgufType type) {
  if (type == GgufType::bf16) return DType::bf16;
  return type == GgufType::f16 ? DType::f16 : DType::f32;
}

// Reordering requires complete heads of an even size.
void check_heads(const GgufFile& file, const GgufTensor& tensor, int64_t heads) {
  if (heads <= 0 || tensor.shape[0] % (2 * heads) == 0) return;
  fail(ErrorKind::corrupt, "'{}': tensor '{}' has {} rows, which are not {} heads", file.path(),
       tensor.name, tensor.shape[0], heads);
}

std::vector<Source> plan_import(const GgufFile& file, const Json& config) {
  const auto architecture =
      gguf_architecture_of(file.find("general.architecture")->get<std::string>());
  TUTTI_CHECK(architecture, "a known architecture");
  const int64_t layers = config.value("num_hidden_layers", config.value("n_layer", int64_t{0}));
  if (layers > static_cast<int64_t>(file.tensors().size())) {
    fail(ErrorKind::corrupt, "'{}': {} layers cannot be stored in {} tensors", file.path(), layers,
         file.tensors().size());
  }
  const int64_t heads = heads_of(config);
  const int64_t kv_heads = config.value("num_key_value_heads", heads);
  std::vector<Source> sources;
  std::set<std::string> used = {kGgufRopeFactors};
  for (const std::string& name : hf_names(*architecture, layers)) {
    const GgufPart part = *gguf_part(*architecture, name, heads, kv_heads);
    const GgufTensor* tensor = file.tensor(part.name);
    if (tensor == nullptr) continue;  // the import reports tensors that the model lacks
    if (part.transposed && tensor->shape.size() != 2) {
      fail(ErrorKind::corrupt, "'{}': tensor '{}' has {} dimensions instead of 2", file.path(),
           tensor->name, tensor->shape.size());
    }
    check_heads(file, *tensor, part.heads);
    used.insert(part.name);
    Source source{tensor, part, {name, dtype_of(tensor->type), tensor->shape, 0, 0}};
    if (part.transposed) std::swap(source.target.shape[0], source.target.shape[1]);
    sources.push_back(std::move(source));
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (used.count(tensor.name) > 0) continue;
    fail(ErrorKind::unsupported,
         "'{}': tensor '{}' does not belong to this architecture's {} layers", file.path(),
         tensor.name, layers);
  }
  return sources;
}

}  // namespace

bool is_gguf(FileSystem& files, const std::string& path) {
  if (!files.exists(path) || files.is_directory(path)) return false;
  return files.map(path)->bytes().substr(0, 4) == "GGUF";
}

GgufWritten write_gguf_of(FileSystem& files, const std::string& folder_path,
                          const std::string& path, const GgufOptions& options) {
  const HfFolder folder(files, folder_path);
  if (has_packing(folder.config())) {
    fail(ErrorKind::unsupported, "'{}' cannot be written as GGUF: its weights are quantized",
         folder_path);
  }
  GgufConfig config = gguf_config(folder.config(), folder.config_path());
  append_general(options, config.metadata);
  GgufWritten out;
  append_vocabulary(files, folder_path, folder.config(), config.metadata, out.notes);
  const std::vector<Plan> plans = plan_export(folder, config.architecture);
  std::vector<GgufTensor> tensors;
  std::map<std::string, const Plan*> by_name;
  int64_t total = 0;
  for (const Plan& plan : plans) {
    GgufTensor tensor{plan.part.name, GgufType::f32, folder.tensor(plan.hf_name).shape};
    if (plan.part.transposed) std::swap(tensor.shape[0], tensor.shape[1]);
    tensor.type = type_in_file(tensor.shape, options.type, out.plain_tensors);
    total += gguf_bytes(tensor.type, elements_of_shape(tensor.shape));
    by_name[tensor.name] = &plan;
    tensors.push_back(std::move(tensor));
  }
  if (!config.rope_factors.empty()) {
    tensors.push_back(
        {kGgufRopeFactors, GgufType::f32, {static_cast<int64_t>(config.rope_factors.size())}});
  }
  out.tensors = static_cast<int64_t>(tensors.size());
  int64_t done = 0;
  write_gguf(files, path, config.metadata, tensors,
             [&](const GgufTensor& tensor, const GgufAppend& append) {
               const auto found = by_name.find(tensor.name);
               std::vector<float> values = config.rope_factors;
               if (found != by_name.end()) {
                 const std::string& hf_name = found->second->hf_name;
                 values = to_gguf(*found->second, folder.tensor(hf_name).shape,
                                  read_f32(folder, hf_name));
                 folder.release(hf_name, 0, static_cast<int64_t>(folder.bytes(hf_name).size()));
               }
               std::string bytes(static_cast<size_t>(tensor.bytes), '\0');
               encode_gguf(tensor.type, values.data(), static_cast<int64_t>(values.size()),
                           bytes.data(), tensor.name);
               append(bytes.data(), bytes.size());
               done += tensor.bytes;
               if (options.progress) options.progress(std::min(done, total), total);
             });
  out.file_bytes = files.size_bytes(path);
  if (out.plain_tensors > 0) {
    out.notes.push_back(
        fmt::format("{} matrices have rows that are not multiples of {} and are f16",
                    out.plain_tensors, kGgufBlock));
  }
  return out;
}

std::vector<std::string> write_folder_of(
    FileSystem& files, const std::string& path, const std::string& folder,
    const std::function<void(int64_t done_bytes, int64_t total_bytes)>& progress) {
  const GgufFile file(files, path);
  Json config = config_of_gguf(file);
  std::vector<std::string> notes;
  const std::vector<Source> sources = plan_import(file, config);
  write_vocabulary(files, file, folder, config, notes);
  std::vector<SafetensorsTensor> targets;
  std::map<std::string, const Source*> by_name;
  for (const Source& source : sources) {
    targets.push_back(source.target);
    by_name[source.target.name] = &source;
  }
  const SafetensorsLayout layout = layout_safetensors(std::move(targets), {{"format", "pt"}});
  const auto out = files.create(join_path(folder, kHfSingle));
  out->append(layout.header.data(), layout.header.size());
  int64_t done = 0;
  for (const SafetensorsTensor& target : layout.tensors) {
    const std::vector<float> values = from_gguf(file, *by_name.at(target.name));
    std::string bytes(static_cast<size_t>(checked_bytes(target.dtype, target.shape)), '\0');
    convert_elements(DType::f32, values.data(), target.dtype, bytes.data(),
                     static_cast<int64_t>(values.size()), "'" + path + "': '" + target.name + "'");
    out->append(bytes.data(), bytes.size());
    done += static_cast<int64_t>(bytes.size());
    if (progress) progress(done, layout.file_bytes);
  }
  out->sync();
  out->close();
  write_file_atomic(files, join_path(folder, kHfConfig), pretty_json(config));
  return notes;
}

}  // namespace tutti::checkpoint
