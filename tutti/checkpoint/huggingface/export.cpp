#include "tutti/checkpoint/huggingface/export.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/pretty_json.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/huggingface/names.h"
#include "tutti/checkpoint/store/elements.h"
#include "tutti/checkpoint/store/safetensors.h"

namespace tutti::checkpoint {
namespace {

// One tensor to write and its sources.
struct Item {
  const HfParameter* parameter;
  const HfPart* part;
  int64_t first;  // of its elements in the parameter
  DType dtype;
};
using ExportShard = std::vector<Item>;

int64_t elements_of(const std::vector<int64_t>& shape) { return checked_bytes(DType::u8, shape); }

int64_t bytes_of(const Item& item) { return checked_bytes(item.dtype, item.part->shape); }

std::string stored_name(const HfParameter& parameter) { return "param." + parameter.name; }

void check_stored(const Reader& reader, const HfParameter& parameter) {
  const TensorRecord& record = reader.tensor(stored_name(parameter));
  if (record.shape != parameter.shape || !is_parameter_type(record.dtype)) {
    fail(ErrorKind::usage, "{}: tensor '{}' is {} {}; the recipe's model needs shape {}",
         reader.path(), record.name, dtype_name(record.dtype), format_shape(record.shape),
         format_shape(parameter.shape));
  }
}

// All tensors in the order of the parameters, cut into shards.
std::vector<ExportShard> plan_shards(const Reader& reader,
                                     const std::vector<HfParameter>& parameters,
                                     const HfExportOptions& options, DType zero_dtype) {
  std::vector<ExportShard> shards(1);
  int64_t bytes = 0;
  for (const HfParameter& parameter : parameters) {
    DType dtype = zero_dtype;
    if (!parameter.name.empty()) {
      check_stored(reader, parameter);
      dtype = options.dtype.value_or(reader.tensor(stored_name(parameter)).dtype);
    }
    int64_t first = 0;
    for (const HfPart& part : parameter.parts) {
      const Item item = {&parameter, &part, first, dtype};
      if (!shards.back().empty() && bytes + bytes_of(item) > options.shard_bytes) {
        shards.emplace_back();
        bytes = 0;
      }
      shards.back().push_back(item);
      bytes += bytes_of(item);
      first += elements_of(part.shape);
    }
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  return count == 1 ? kHfSingle : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

void write_small(FileSystem& files, const std::string& path, const std::string& text) {
  const auto file = files.create(path);
  file->append(text.data(), text.size());
  file->sync();
  file->close();
}

class Exporter {
 public:
  Exporter(FileSystem& files, Reader& reader, const spec::ModelConfig& model,
           const HfExportOptions& options, int64_t total_bytes)
      : files_(files), reader_(reader), model_(model), options_(options), total_(total_bytes) {}

  void write_shard(const std::string& path, const ExportShard& shard) {
    std::vector<SafetensorsTensor> entries;
    std::map<std::string, const Item*> items;
    for (const Item& item : shard) {
      entries.push_back({item.part->name, item.dtype, item.part->shape, 0, 0});
      items[item.part->name] = &item;
    }
    const SafetensorsLayout layout = layout_safetensors(std::move(entries), {{"format", "pt"}});
    const std::unique_ptr<WritableFile> out = files_.create(path);
    out->append(layout.header.data(), layout.header.size());
    for (const SafetensorsTensor& tensor : layout.tensors) {
      const AppendBytes append = [&](const void* data, int64_t bytes) {
        out->append(data, static_cast<size_t>(bytes));
        done_ += bytes;
        if (options_.progress) options_.progress(done_, total_);
      };
      write_item(*items.at(tensor.name), append);
    }
    out->sync();
    out->close();
  }

 private:
  void write_item(const Item& item, const AppendBytes& append) {
    if (item.parameter->name.empty()) {
      const std::string zeros(static_cast<size_t>(bytes_of(item)), '\0');
      return append(zeros.data(), bytes_of(item));
    }
    const std::string name = stored_name(*item.parameter);
    const DType stored = reader_.tensor(name).dtype;
    std::string joined;
    const char* data = whole(name, joined);
    StreamedTensor streamed;
    streamed.name = fmt::format("{}: tensor '{}'", reader_.path(), name);
    streamed.rows = rows_from_ours(*item.part, stored, data + item.first * dtype_bytes(stored),
                                   options_.rope_layout, model_.head_dim);
    streamed.from = stored;
    streamed.to = item.dtype;
    stream_tensor(streamed, append);
    reader_.release(name);
  }

  // The elements of a stored tensor: from the mapped file, or concatenated from its slices.
  const char* whole(const std::string& name, std::string& joined) {
    const TensorRecord& record = reader_.tensor(name);
    if (record.slices.size() == 1) return reader_.bytes(name).data();
    joined.resize(static_cast<size_t>(checked_bytes(record.dtype, record.shape)));
    reader_.load(name, record.dtype, record.shape, joined.data());
    return joined.data();
  }

  FileSystem& files_;
  Reader& reader_;
  const spec::ModelConfig& model_;
  const HfExportOptions& options_;
  int64_t total_;
  int64_t done_ = 0;
};

void write_index(FileSystem& files, const std::string& folder,
                 const std::vector<ExportShard>& shards, int64_t total_bytes) {
  Json weight_map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const Item& item : shards[i]) {
      weight_map[item.part->name] = shard_name(i, shards.size());
    }
  }
  const Json index = {{"metadata", {{"total_size", total_bytes}}},
                      {"weight_map", std::move(weight_map)}};
  write_small(files, join_path(folder, kHfIndex), pretty_json(index));
}

}  // namespace

HfExported export_parameters(FileSystem& files, Reader& reader, const spec::ModelConfig& model,
                             const std::string& folder, const HfExportOptions& options) {
  TUTTI_CHECK(options.shard_bytes > 0, "shards of {} bytes", options.shard_bytes);
  const HfFamily family = hf_family_of(model, options.original);
  const std::vector<HfParameter> parameters = hf_parameters(model, family, hf_prefix(family));
  const DType first = reader.tensor(stored_name(parameters.front())).dtype;
  const std::vector<ExportShard> shards =
      plan_shards(reader, parameters, options, options.dtype.value_or(first));

  HfExported exported;
  exported.dtype = shards.front().front().dtype;
  for (const ExportShard& shard : shards) {
    for (const Item& item : shard) {
      ++exported.tensors;
      exported.tensor_bytes += bytes_of(item);
      exported.zero_tensors += item.parameter->name.empty() ? 1 : 0;
      if (item.dtype != exported.dtype) exported.dtype = DType::f32;
    }
  }
  Exporter exporter(files, reader, model, options, exported.tensor_bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    exported.files.push_back(shard_name(i, shards.size()));
    exporter.write_shard(join_path(folder, exported.files.back()), shards[i]);
  }
  if (shards.size() > 1) write_index(files, folder, shards, exported.tensor_bytes);
  const Json config = hf_config(model, exported.dtype, options.original);
  write_small(files, join_path(folder, kHfConfig), pretty_json(config));
  return exported;
}

}  // namespace tutti::checkpoint
