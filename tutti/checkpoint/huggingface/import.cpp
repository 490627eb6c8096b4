#include "tutti/checkpoint/huggingface/import.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/huggingface/deepseek_keys.h"
#include "tutti/checkpoint/huggingface/families.h"
#include "tutti/checkpoint/huggingface/fp8.h"
#include "tutti/checkpoint/huggingface/mxfp4.h"
#include "tutti/checkpoint/huggingface/pack_quantized.h"
#include "tutti/checkpoint/huggingface/packing_config.h"
#include "tutti/checkpoint/store/elements.h"

namespace tutti::checkpoint {
namespace {

// The prefix of the folder's tensor names.
std::string_view find_prefix(const HfFolder& folder, HfFamily family) {
  const std::string_view usual = hf_prefix(family);
  const std::string bare(hf_embedding_name(family));
  return !folder.contains(std::string(usual) + bare) && folder.contains(bare) ? "" : usual;
}

// A config.json can claim any number of layers; at most as many names are generated as there are
// tensors.
void check_counts(const HfFolder& folder, const HfModel& hf) {
  const int64_t tensors = folder.tensor_count();
  const spec::ModelConfig& model = hf.model;
  const bool one_by_one = model.moe.experts > 0 && !hf_family_names(hf.family).experts.stacked;
  if (model.layers > tensors || (one_by_one && model.moe.experts > tensors / model.layers)) {
    fail(ErrorKind::usage,
         "{}: {} layers{} cannot be stored in the {} tensors of its safetensors files",
         folder.config_path(), model.layers,
         model.moe.experts > 0 ? fmt::format(" with {} experts each", model.moe.experts) : "",
         tensors);
  }
}

// Of matrices that may be packed; false: the part is not.
bool check_if_packed(const HfFolder& folder, const HfModel& hf, const HfParameter& parameter,
                     const HfPart& part) {
  if (!hf.packing || !has_packed(folder, part)) return false;
  const std::optional<PackKind> kind = file_pack_kind(hf.model, parameter, *hf.packing);
  if (!kind) {
    fail(ErrorKind::unsupported, "{}: tensor '{}' is packed; it may be F32, BF16 or F16",
         folder.file_of(packed_codes(part)), packed_codes(part));
  }
  if (!has_packed(folder, parameter.parts.front())) {
    fail(ErrorKind::unsupported, "{}: '{}' is packed and '{}' is not; pack both or none",
         folder.path(), part.name, parameter.parts.front().name);
  }
  check_packed(folder, part, *kind);
  return true;
}

void check_part(const HfFolder& folder, const HfModel& hf, const HfParameter& parameter,
                const HfPart& part) {
  const HfFamily family = hf.family;
  if (check_if_packed(folder, hf, parameter, part)) return;
  if (packed_kind(folder, hf, parameter)) {
    fail(ErrorKind::unsupported, "{}: '{}' is packed and '{}' is not; pack both or none",
         folder.path(), parameter.parts.front().name, part.name);
  }
  if (has_mxfp4(folder, part)) return check_mxfp4(folder, part);
  if (has_fp8(folder, part)) {
    if (is_deepseek(family)) return check_fp8(folder, part);
    fail(ErrorKind::unsupported,
         "{}: tensor '{}' is F8_E4M3; model type {} is read from F32, BF16 "
         "or F16",
         folder.file_of(part.name), part.name, hf_family_name(family));
  }
  if (!folder.contains(part.name)) {
    const std::string nearest = nearest_word(part.name, folder.tensor_names());
    fail(ErrorKind::usage, "{}: tensor '{}' is missing, but {} needs it{}", folder.path(),
         part.name, folder.config_path(),
         nearest.empty() ? "" : fmt::format("; the closest existing name is '{}'", nearest));
  }
  const SafetensorsTensor& found = folder.tensor(part.name);
  if (found.shape != part.shape) {
    fail(ErrorKind::usage, "{}: tensor '{}' has shape {}; by {} it should be {}",
         folder.file_of(part.name), part.name, format_shape(found.shape), folder.config_path(),
         format_shape(part.shape));
  }
  if (!is_parameter_type(found.dtype)) {
    fail(ErrorKind::unsupported, "{}: tensor '{}' is {}; parameters may be F32, BF16 or F16",
         folder.file_of(part.name), part.name, dtype_name(found.dtype));
  }
}

void check_tied_head(const HfFolder& folder, const std::string& embedding) {
  const std::string head(kHfHead);
  if (folder.tensor(head).dtype != folder.tensor(embedding).dtype ||
      folder.bytes(head) != folder.bytes(embedding)) {
    fail(ErrorKind::usage,
         "{}: tensor '{}' differs from '{}', though tie_word_embeddings in {} says that they are "
         "one",
         folder.file_of(head), head, embedding, folder.config_path());
  }
  for (const std::string& name : {head, embedding}) {
    folder.release(name, 0, static_cast<int64_t>(folder.bytes(name).size()));
  }
}

DType widest(DType a, DType b) {
  // bf16 and f16 have different ranges: only f32 contains both.
  return a == b ? a : DType::f32;
}

// Names of the tensors that store a part.
std::vector<std::string> stored_names(const HfFolder& folder, const HfModel& hf,
                                      const HfPart& part) {
  if (hf.packing && has_packed(folder, part)) {
    return {packed_codes(part), packed_scales(part), packed_shape(part)};
  }
  if (has_mxfp4(folder, part)) return {mxfp4_blocks(part), mxfp4_scales(part)};
  if (has_fp8(folder, part)) return {part.name, fp8_scales(part)};
  return {part.name};
}
DType stored_type(const HfFolder& folder, const HfPart& part) {
  const bool decoded = has_mxfp4(folder, part) || has_fp8(folder, part);
  return decoded ? DType::bf16 : folder.tensor(part.name).dtype;
}

// Whether a tensor belongs to layers after the last, which the import leaves out.
bool is_left_out(const HfModel& hf, std::string_view prefix, const std::string& name) {
  const std::string start = fmt::format("{}layers.", prefix);
  if (hf.left_out_layers == 0 || !name.starts_with(start)) return false;
  int64_t layer = -1;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + start.size(), end, layer);
  return parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '.' &&
         layer >= hf.model.layers && layer - hf.model.layers < hf.left_out_layers;
}

// Reports the bytes read over all tensors.
class Progress {
 public:
  Progress(const HfImportOptions& options, int64_t total)
      : report_(options.progress), total_(total) {
    if (report_) report_(0, total_);
  }
  void within(int64_t tensor_bytes) const {
    if (report_) report_(before_ + tensor_bytes, total_);
  }
  void finished(int64_t tensor_bytes) { before_ += tensor_bytes; }

 private:
  const std::function<void(int64_t, int64_t)>& report_;
  int64_t total_;
  int64_t before_ = 0;
};

}  // namespace

std::vector<HfParameter> locate_parameters(const HfFolder& folder, const HfModel& hf) {
  check_counts(folder, hf);
  const std::string_view prefix = find_prefix(folder, hf.family);
  std::vector<HfParameter> parameters = hf_parameters(hf.model, hf.family, prefix);
  std::set<std::string> expected;
  for (const HfParameter& parameter : parameters) {
    for (const HfPart& part : parameter.parts) {
      check_part(folder, hf, parameter, part);
      for (const std::string& name : stored_names(folder, hf, part)) expected.insert(name);
    }
  }
  for (const std::string& name : folder.tensor_names()) {
    if (expected.count(name) > 0 || is_hf_buffer(name)) continue;
    if (is_left_out(hf, prefix, name)) continue;
    if (name == kHfHead && hf.model.tied_embeddings) {
      check_tied_head(folder, std::string(prefix) + std::string(hf_embedding_name(hf.family)));
      continue;
    }
    fail(ErrorKind::usage, "{}: tensor '{}' is not part of the model that {} describes",
         folder.file_of(name), printable(name), folder.config_path());
  }
  return parameters;
}

void stream_parameter(const HfFolder& folder, const HfModel& hf, const HfParameter& parameter,
                      DType to, RopeLayout rope_layout, const AppendBytes& append,
                      const std::function<void(int64_t part_bytes, bool whole)>& read) {
  const auto report = [&](int64_t part_bytes, bool whole) {
    if (read) read(part_bytes, whole);
  };
  for (const HfPart& part : parameter.parts) {
    if (has_mxfp4(folder, part)) {
      report(stream_mxfp4(folder, part, to, append), true);
      report(0, false);
      continue;
    }
    if (has_fp8(folder, part)) {
      report(stream_fp8(folder, part, to, rope_layout, hf.model.head_dim, append), true);
      report(0, false);
      continue;
    }
    const SafetensorsTensor& stored = folder.tensor(part.name);
    const std::string_view bytes = folder.bytes(part.name);
    StreamedTensor streamed;
    streamed.name = fmt::format("{}: tensor '{}'", folder.file_of(part.name), part.name);
    streamed.rows = rows_to_ours(part, stored.dtype, bytes.data(), rope_layout, hf.model.head_dim);
    streamed.from = stored.dtype;
    streamed.to = to;
    streamed.read = [&, released = int64_t{0}](int64_t done) mutable {
      folder.release(part.name, released, done);
      released = done;
      report(done, false);
    };
    stream_tensor(streamed, append);
    report(static_cast<int64_t>(bytes.size()), true);
  }
}

std::optional<PackKind> packed_kind(const HfFolder& folder, const HfModel& hf,
                                    const HfParameter& parameter) {
  if (!hf.packing || !has_packed(folder, parameter.parts.front())) return {};
  return file_pack_kind(hf.model, parameter, *hf.packing);
}

void refuse_packed(const HfModel& hf, const std::string& folder, const std::string& what) {
  if (!hf.packing) return;
  fail(ErrorKind::unsupported,
       "'{}' {}: its weights are quantized to {}, for serving (tutti endpoint, tutti generate); "
       "take "
       "the run or the model that it was made of",
       folder, what, pack_name(*hf.packing));
}

HfImported import_parameters(FileSystem& files, const HfFolder& folder, const HfModel& hf,
                             const State& state, const std::string& checkpoints,
                             const HfImportOptions& options) {
  refuse_packed(hf, folder.path(), "cannot be imported");
  const std::vector<HfParameter> parameters = locate_parameters(folder, hf);
  HfImported imported;
  int64_t total = 0;
  std::vector<TensorSource> tensors;
  for (const HfParameter& parameter : parameters) {
    TUTTI_CHECK(!parameter.name.empty(), "a model that was read has all its biases");
    DType dtype = stored_type(folder, parameter.parts.front());
    for (const HfPart& part : parameter.parts) {
      dtype = widest(dtype, stored_type(folder, part));
      for (const std::string& name : stored_names(folder, hf, part)) {
        total += static_cast<int64_t>(folder.bytes(name).size());
        ++imported.tensors;
      }
    }
    dtype = options.dtype.value_or(dtype);
    imported.parameters += checked_bytes(DType::u8, parameter.shape);
    imported.dtype = tensors.empty() ? dtype : widest(imported.dtype, dtype);
    tensors.push_back({"param." + parameter.name, dtype, parameter.shape, nullptr, {}, {}});
  }
  Progress progress(options, total);
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].stream = [&, i](const AppendBytes& append) {
      stream_parameter(folder, hf, parameters[i], tensors[i].dtype, options.rope_layout, append,
                       [&](int64_t part_bytes, bool whole) {
                         if (whole) {
                           progress.finished(part_bytes);
                         } else {
                           progress.within(part_bytes);
                         }
                       });
    };
  }
  imported.written = write_checkpoint(files, checkpoints, tensors, state, options.write);
  return imported;
}

}  // namespace tutti::checkpoint
