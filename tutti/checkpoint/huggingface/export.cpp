#include "tutti/checkpoint/huggingface/export.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/pretty_json.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/families.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/huggingface/names.h"
#include "tutti/checkpoint/huggingface/pack_quantized.h"
#include "tutti/checkpoint/huggingface/packing_config.h"
#include "tutti/checkpoint/store/elements.h"
#include "tutti/checkpoint/store/parallel.h"
#include "tutti/checkpoint/store/safetensors.h"
#include "tutti/spec/model/packed_params.h"

namespace tutti::checkpoint {
namespace {

// One tensor to write and its sources. Of a packed matrix there are three.
enum class Form { plain, codes, scales, shape };
struct Item {
  const HfParameter* parameter;
  const HfPart* part;
  int64_t first;  // of its elements in the parameter
  DType dtype;
  std::string name;
  std::vector<int64_t> shape;
  Form form = Form::plain;
  PackKind kind = PackKind::int8;
};
using ExportShard = std::vector<Item>;

int64_t elements_of(const std::vector<int64_t>& shape) { return checked_bytes(DType::u8, shape); }

int64_t bytes_of(const Item& item) { return checked_bytes(item.dtype, item.shape); }

std::string stored_name(const HfParameter& parameter) { return "param." + parameter.name; }

void check_stored(const Reader& reader, const HfParameter& parameter) {
  const TensorRecord& record = reader.tensor(stored_name(parameter));
  if (record.shape != parameter.shape || !is_parameter_type(record.dtype)) {
    fail(ErrorKind::usage, "{}: tensor '{}' is {} {}; the recipe's model needs shape {}",
         reader.path(), record.name, dtype_name(record.dtype), format_shape(record.shape),
         format_shape(parameter.shape));
  }
}

// Which kind a parameter is packed in; nullopt: none.
std::optional<PackKind> pack_kind_of(const spec::ModelConfig& model, const HfExportOptions& options,
                                     const HfParameter& parameter) {
  if (!options.pack) return {};
  const std::optional<PackKind> kind = file_pack_kind(model, parameter, *options.pack);
  if (kind && parameter.shape.back() % kPackGroup != 0) {
    fail(ErrorKind::unsupported,
         "--dtype {}: '{}' has {} columns, which are not groups of {}; export bf16, and serve that "
         "with --weights {}",
         pack_name(*options.pack), parameter.name, parameter.shape.back(), kPackGroup,
         pack_name(*options.pack));
  }
  return kind;
}

// Whether a parameter is packed when it is read: only its own values then give the bits of packing
// the run itself.
bool packed_in_memory(const spec::ModelConfig& model, const HfExportOptions& options,
                      const HfParameter& parameter) {
  return options.pack &&
         spec::pack_kind_of(model, parameter.name, parameter.shape, *options.pack).has_value();
}

// The tensors of a part.
std::vector<Item> items_of(const Item& plain, std::optional<PackKind> kind) {
  if (!kind) return {plain};
  const std::vector<int64_t> shape = packed_part(*plain.part).shape;
  const int64_t rows = shape[0];
  const int64_t columns = shape[1];
  const auto item = [&](Form form, DType dtype, std::string name, std::vector<int64_t> of) {
    return Item{plain.parameter, plain.part,    plain.first, dtype,
                std::move(name), std::move(of), form,        *kind};
  };
  return {item(Form::codes, DType::i32, packed_codes(*plain.part),
               {rows, packed_words(*kind, columns)}),
          item(Form::scales, DType::bf16, packed_scales(*plain.part), {rows, columns / kPackGroup}),
          item(Form::shape, DType::i64, packed_shape(*plain.part), {2})};
}

// All tensors in the order of the parameters, cut into shards; those of a part stay together.
std::vector<ExportShard> plan_shards(const Reader& reader, const spec::ModelConfig& model,
                                     const std::vector<HfParameter>& parameters,
                                     const HfExportOptions& options, DType zero_dtype) {
  std::vector<ExportShard> shards(1);
  int64_t bytes = 0;
  for (const HfParameter& parameter : parameters) {
    DType dtype = zero_dtype;
    if (!parameter.name.empty()) {
      check_stored(reader, parameter);
      const DType stored = reader.tensor(stored_name(parameter)).dtype;
      dtype = packed_in_memory(model, options, parameter) ? stored : options.dtype.value_or(stored);
    }
    const std::optional<PackKind> kind = pack_kind_of(model, options, parameter);
    int64_t first = 0;
    for (const HfPart& part : parameter.parts) {
      const std::vector<Item> items =
          items_of({&parameter, &part, first, dtype, part.name, part.shape}, kind);
      int64_t of_part = 0;
      for (const Item& item : items) of_part += bytes_of(item);
      if (!shards.back().empty() && bytes + of_part > options.shard_bytes) {
        shards.emplace_back();
        bytes = 0;
      }
      shards.back().insert(shards.back().end(), items.begin(), items.end());
      bytes += of_part;
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
      entries.push_back({item.name, item.dtype, item.shape, 0, 0});
      items[item.name] = &item;
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
    if (item.form == Form::shape) {
      const std::vector<int64_t> shape = packed_part(*item.part).shape;
      return append(shape.data(), bytes_of(item));
    }
    if (item.parameter->name.empty()) {
      const std::string zeros(static_cast<size_t>(bytes_of(item)), '\0');
      return append(zeros.data(), bytes_of(item));
    }
    const std::string name = stored_name(*item.parameter);
    const DType stored = reader_.tensor(name).dtype;
    std::string joined;
    const char* data = whole(name, joined);
    const bool packs = item.form != Form::plain;
    StreamedTensor streamed;
    streamed.name = fmt::format("{}: tensor '{}'", reader_.path(), name);
    streamed.rows = rows_from_ours(packs ? packed_part(*item.part) : *item.part, stored,
                                   data + item.first * dtype_bytes(stored), options_.rope_layout,
                                   model_.head_dim);
    streamed.from = stored;
    streamed.to = packs ? DType::f32 : item.dtype;
    if (packs) {
      const int64_t columns = streamed.rows.columns;
      stream_tensor(streamed, [&](const void* values, int64_t bytes) {
        pack_rows(item, static_cast<const float*>(values), bytes / 4 / columns, columns, append);
      });
    } else {
      stream_tensor(streamed, append);
    }
    reader_.release(name);
  }

  // Codes or scales of some rows. Both come out of one computation, but files have all codes before
  // all scales: it is done for each, rather than keep one of them.
  void pack_rows(const Item& item, const float* values, int64_t rows, int64_t columns,
                 const AppendBytes& append) {
    const int64_t row_bytes = 4 * packed_words(item.kind, columns);
    const int64_t groups = columns / kPackGroup;
    std::vector<uint8_t> words(static_cast<size_t>(rows * row_bytes));
    std::vector<bf16> scales(static_cast<size_t>(rows * groups));
    parallel_threads(rows, [&](int64_t row) {
      pack_words(item.kind, values + row * columns, columns, words.data() + row * row_bytes,
                 scales.data() + row * groups);
    });
    if (item.form == Form::codes) return append(words.data(), rows * row_bytes);
    append(scales.data(), rows * groups * int64_t{sizeof(bf16)});
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
      weight_map[item.name] = shard_name(i, shards.size());
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
  if (options.pack && hf_family_names(family).experts.stacked) {
    fail(
        ErrorKind::unsupported,
        "--dtype {}: model type {} has all experts of a layer in one tensor, for which there is no "
        "packed form; export bf16, and serve that with --weights {}",
        pack_name(*options.pack), hf_family_name(family), pack_name(*options.pack));
  }
  const std::vector<ExportShard> shards =
      plan_shards(reader, model, parameters, options, options.dtype.value_or(first));

  HfExported exported;
  exported.dtype = options.dtype.value_or(first);
  for (const ExportShard& shard : shards) {
    for (const Item& item : shard) {
      ++exported.tensors;
      exported.tensor_bytes += bytes_of(item);
      exported.zero_tensors += item.parameter->name.empty() ? 1 : 0;
      if (!options.pack && item.dtype != exported.dtype) exported.dtype = DType::f32;
    }
  }
  Exporter exporter(files, reader, model, options, exported.tensor_bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    exported.files.push_back(shard_name(i, shards.size()));
    exporter.write_shard(join_path(folder, exported.files.back()), shards[i]);
  }
  if (shards.size() > 1) write_index(files, folder, shards, exported.tensor_bytes);
  Json config = hf_config(model, exported.dtype, options.original);
  if (options.pack) {
    config["quantization_config"] = packing_config(model, family, parameters, *options.pack);
  }
  write_small(files, join_path(folder, kHfConfig), pretty_json(config));
  return exported;
}

}  // namespace tutti::checkpoint
