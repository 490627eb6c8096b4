#include "tutti/checkpoint/store/manifest.h"

#include <cctype>
#include <cmath>
#include <limits>
#include <set>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/store/safetensors.h"

namespace tutti::checkpoint {
namespace {

constexpr int64_t kLargestChunkBytes = int64_t{1} << 30;
constexpr std::string_view kStepPrefix = "step-";

constexpr const char* kCipher = "xchacha20-poly1305";
constexpr size_t kSignatureDigits = 64;

std::string signature_line(std::string_view signature) {
  return fmt::format("  \"signature\": \"{}\",\n", signature);
}

// The end of every manifest: the checksum of all bytes before it.
std::string trailer(std::string_view body) {
  return fmt::format("  \"manifest_xxh3\": \"{}\"\n}}\n", hash_hex(hash_text(body)));
}

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json to_json(const FileRecord& file) {
  Json chunks = Json::array();
  for (const uint64_t chunk : file.chunks) chunks.push_back(hash_hex(chunk));
  Json json = {{"name", file.name}, {"bytes", file.bytes}, {"xxh3", std::move(chunks)}};
  if (!file.salt.empty()) json["salt"] = file.salt;
  return json;
}

Json to_json(const TensorRecord& tensor) {
  Json slices = Json::array();
  for (const Slice& slice : tensor.slices) {
    slices.push_back({{"file", slice.file},
                      {"begin", slice.begin},
                      {"end", slice.end},
                      {"offset", slice.offset},
                      {"shape", slice.shape}});
  }
  return {{"name", tensor.name},
          {"dtype", dtype_name(tensor.dtype)},
          {"shape", tensor.shape},
          {"slices", std::move(slices)}};
}

// "key": [ with one element per line.
template <typename Record>
std::string list_text(const char* key, const std::vector<Record>& records) {
  std::string text = fmt::format("  \"{}\": [", key);
  for (size_t i = 0; i < records.size(); ++i) {
    text += fmt::format("{}\n    {}", i > 0 ? "," : "", dump_json(to_json(records[i])));
  }
  return text + "\n  ],\n";
}

uint64_t parse_hash(const std::string& text, std::string_view path) {
  uint64_t hash = 0;
  for (const char digit : text) {
    const size_t value = std::string_view("0123456789abcdef").find(digit);
    if (value == std::string_view::npos || text.size() != 16) {
      fail(ErrorKind::corrupt, "{}: '{}' is not a checksum of 16 lower-case hex digits", path,
           printable(text));
    }
    hash = hash << 4 | value;
  }
  return hash;
}

FileRecord parse_file(const Json& json, int64_t chunk_bytes, bool sealed, std::string_view path) {
  FileRecord file;
  file.name = json_get<std::string>(json, "name", path);
  if (file.name.empty() || file.name == "." || file.name == ".." || file.name == kManifestName ||
      file.name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
    fail(ErrorKind::corrupt, "{}: '{}' is not a plain file name inside the checkpoint's folder",
         path, printable(file.name));
  }
  file.bytes = json_get<int64_t>(json, "bytes", path);
  for (const std::string& chunk : json_get<std::vector<std::string>>(json, "xxh3", path)) {
    file.chunks.push_back(parse_hash(chunk, path));
  }
  const int64_t chunks = file.bytes / chunk_bytes + (file.bytes % chunk_bytes != 0 ? 1 : 0);
  if (file.bytes < 0 || static_cast<int64_t>(file.chunks.size()) != chunks) {
    fail(ErrorKind::corrupt, "{}: file {} of {} bytes has {} checksums, one per {} bytes", path,
         file.name, file.bytes, file.chunks.size(), chunk_bytes);
  }
  file.content_bytes = file.bytes;
  if (sealed) {
    file.salt = json_get<std::string>(json, "salt", path);
    file.content_bytes -= chunks * kSealBytes;
    if (file.content_bytes <= (chunks - 1) * (chunk_bytes - kSealBytes)) {
      fail(ErrorKind::corrupt, "{}: file {} of {} bytes is too short for the seals of {} chunks",
           path, file.name, file.bytes, chunks);
    }
  }
  return file;
}

// Number of elements; of a shape that was checked.
int64_t volume(const std::vector<int64_t>& shape) { return checked_bytes(DType::u8, shape); }

bool overlap(const Slice& a, const Slice& b) {
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (a.offset[d] + a.shape[d] <= b.offset[d] || b.offset[d] + b.shape[d] <= a.offset[d]) {
      return false;
    }
  }
  return volume(a.shape) > 0 && volume(b.shape) > 0;
}

Slice parse_slice(const Json& json, const TensorRecord& tensor,
                  const std::vector<FileRecord>& files, std::string_view path) {
  Slice slice;
  slice.file = json_get<int64_t>(json, "file", path);
  slice.begin = json_get<int64_t>(json, "begin", path);
  slice.end = json_get<int64_t>(json, "end", path);
  slice.offset = json_get<std::vector<int64_t>>(json, "offset", path);
  slice.shape = json_get<std::vector<int64_t>>(json, "shape", path);
  if (slice.file < 0 || slice.file >= static_cast<int64_t>(files.size())) {
    fail(ErrorKind::corrupt, "{}: tensor '{}' is in file {} of {}", path, printable(tensor.name),
         slice.file, files.size());
  }
  const FileRecord& file = files[static_cast<size_t>(slice.file)];
  if (slice.begin < 0 || slice.begin > slice.end || slice.end > file.content_bytes) {
    fail(ErrorKind::corrupt, "{}: tensor '{}' is at bytes {} to {} of {}, which has {}", path,
         printable(tensor.name), slice.begin, slice.end, file.name, file.content_bytes);
  }
  bool inside =
      slice.shape.size() == tensor.shape.size() && slice.offset.size() == tensor.shape.size();
  for (size_t d = 0; inside && d < tensor.shape.size(); ++d) {
    inside = slice.offset[d] >= 0 && slice.shape[d] >= 0 && slice.offset[d] <= tensor.shape[d] &&
             slice.shape[d] <= tensor.shape[d] - slice.offset[d];
  }
  if (!inside) {
    fail(ErrorKind::corrupt, "{}: slice {} at {} is not inside tensor '{}' of shape {}", path,
         format_shape(slice.shape), format_shape(slice.offset), printable(tensor.name),
         format_shape(tensor.shape));
  }
  if (checked_bytes(tensor.dtype, slice.shape) != slice.end - slice.begin) {
    fail(ErrorKind::corrupt, "{}: slice {} of tensor '{}' ({}) has {} bytes", path,
         format_shape(slice.shape), printable(tensor.name), dtype_name(tensor.dtype),
         slice.end - slice.begin);
  }
  return slice;
}

TensorRecord parse_tensor(const Json& json, const std::vector<FileRecord>& files,
                          std::string_view path, Coverage coverage) {
  TensorRecord tensor;
  tensor.name = json_get<std::string>(json, "name", path);
  tensor.dtype = parse_dtype(json_get<std::string>(json, "dtype", path));
  tensor.shape = json_get<std::vector<int64_t>>(json, "shape", path);
  if (checked_bytes(tensor.dtype, tensor.shape) < 0) {
    fail(ErrorKind::corrupt, "{}: tensor '{}' has impossible shape {}", path,
         printable(tensor.name), format_shape(tensor.shape));
  }
  int64_t elements = 0;
  for (const Json& slice : json_get<Json>(json, "slices", path)) {
    tensor.slices.push_back(parse_slice(slice, tensor, files, path));
    elements += volume(tensor.slices.back().shape);
    for (size_t i = 0; i + 1 < tensor.slices.size(); ++i) {
      if (overlap(tensor.slices[i], tensor.slices.back())) {
        fail(ErrorKind::corrupt, "{}: slices {} and {} of tensor '{}' overlap", path, i,
             tensor.slices.size() - 1, printable(tensor.name));
      }
    }
  }
  const bool whole = elements == volume(tensor.shape);
  if ((!whole && coverage == Coverage::whole) || tensor.slices.empty()) {
    fail(ErrorKind::corrupt, "{}: the slices of tensor '{}' hold {} of its {} elements", path,
         printable(tensor.name), elements, volume(tensor.shape));
  }
  return tensor;
}

// The JSON of a manifest whose checksum holds.
Json checked_json(std::string_view text, std::string_view path) {
  const size_t trailer_bytes = trailer("").size();
  if (text.size() <= trailer_bytes) {
    fail(ErrorKind::corrupt, "{}: {} bytes are too few for a manifest", path, text.size());
  }
  const std::string_view body = text.substr(0, text.size() - trailer_bytes);
  if (text.substr(body.size()) != trailer(body)) {
    fail(ErrorKind::corrupt, "{}: damaged: its checksum does not hold", path);
  }
  return parse_json(text, path);
}

std::string show(const Json& value) { return printable(dump_json(value)); }

// First difference, depth first, as text; empty when equal.
std::string difference(const Json& saved, const Json& expected, const std::string& key) {
  if (!saved.is_object() || !expected.is_object()) {
    if (saved == expected) return {};
    return fmt::format("'{}' is {} in the checkpoint and {} in the recipe", key, show(saved),
                       show(expected));
  }
  const std::string prefix = key.empty() ? "" : key + ".";
  for (const auto& [name, value] : saved.items()) {
    if (!expected.contains(name)) {
      return fmt::format("'{}{}' is {} in the checkpoint and absent in the recipe", prefix, name,
                         show(value));
    }
    std::string found = difference(value, expected.at(name), prefix + name);
    if (!found.empty()) return found;
  }
  for (const auto& [name, value] : expected.items()) {
    if (!saved.contains(name)) {
      return fmt::format("'{}{}' is absent in the checkpoint and {} in the recipe", prefix, name,
                         show(value));
    }
  }
  return {};
}

}  // namespace

int64_t Manifest::total_bytes() const {
  int64_t bytes = 0;
  for (const FileRecord& file : files) bytes += file.bytes;
  return bytes;
}

int64_t Manifest::piece_bytes() const { return chunk_bytes - (seal ? kSealBytes : 0); }

std::string format_manifest(const Manifest& manifest) {
  const State& state = manifest.state;
  Json head = {
      {"format", kFormatName},
      {"format_version", manifest.seal ? kSealedFormatVersion : kFormatVersion},
      {"tutti_version", manifest.tutti_version},
      {"created", manifest.created},
      {"step", state.step},
      {"next_sample", state.next_sample},
      {"random_state", {{"seed", state.seed}, {"step", state.step}}},
      {"validation_loss", number_or_null(state.validation_loss)},
      {"recipe_hash", state.recipe_hash},
      {"model", state.model},
      {"training", state.training},
      {"chunk_bytes", manifest.chunk_bytes},
  };
  if (state.base) {
    head["base"] = {{"path", state.base->path}, {"manifest_xxh3", state.base->manifest_xxh3}};
  }
  if (state.teacher) {
    const Base& from = state.teacher->checkpoint;
    head["teacher"] = {
        {"path", from.path}, {"step", state.teacher->step}, {"manifest_xxh3", from.manifest_xxh3}};
  }
  if (manifest.seal) {
    head["seal"] = {{"cipher", kCipher},
                    {"key_id", manifest.seal->key_id},
                    {"key_file", manifest.seal->key_file}};
  }
  std::string body = "{\n";
  for (const auto& [key, value] : head.items()) {
    body += fmt::format("  \"{}\": {},\n", key, dump_json(value));
  }
  body += list_text("files", manifest.files);
  body += list_text("tensors", manifest.tensors);
  if (manifest.seal) body += signature_line(manifest.signature);
  return body + trailer(body);
}

std::string_view signed_part(std::string_view text, std::string_view path) {
  const std::string any(kSignatureDigits, '0');
  const size_t line = signature_line(any).size();
  const size_t tail = line + trailer("").size();
  const size_t begin = signature_line("").find("\",");  // of the digits
  if (text.size() >= tail) {
    const size_t signed_bytes = text.size() - tail;
    const std::string_view digits = text.substr(signed_bytes + begin, kSignatureDigits);
    if (text.substr(signed_bytes, line) == signature_line(digits)) {
      return text.substr(0, signed_bytes);
    }
  }
  fail(ErrorKind::corrupt, "{}: it is not signed", path);
}

Manifest parse_manifest(std::string_view text, std::string_view path, Coverage coverage) {
  const Json json = checked_json(text, path);
  if (json_get<std::string>(json, "format", path) != kFormatName) {
    fail(ErrorKind::corrupt, "{}: format '{}' instead of '{}'", path, show(json.at("format")),
         kFormatName);
  }
  const auto version = json_get<int64_t>(json, "format_version", path);
  if (version != kFormatVersion && version != kSealedFormatVersion) {
    fail(ErrorKind::unsupported, "{}: format version {}; this Tutti reads versions {} and {}", path,
         version, kFormatVersion, kSealedFormatVersion);
  }
  Manifest manifest;
  if (version == kSealedFormatVersion) {
    const Json seal = json_get<Json>(json, "seal", path);
    const auto cipher = json_get<std::string>(seal, "cipher", path);
    if (cipher != kCipher) {
      fail(ErrorKind::unsupported, "{}: sealed with {}; this version supports {}", path,
           printable(cipher), kCipher);
    }
    manifest.seal = {json_get<std::string>(seal, "key_id", path),
                     json_get<std::string>(seal, "key_file", path)};
    manifest.signature = json_get<std::string>(json, "signature", path);
  }
  State& state = manifest.state;
  state.step = json_get<int64_t>(json, "step", path);
  state.next_sample = json_get<int64_t>(json, "next_sample", path);
  state.seed = json_get<uint64_t>(json_get<Json>(json, "random_state", path), "seed", path);
  if (!json_get<Json>(json, "validation_loss", path).is_null()) {
    state.validation_loss = json_get<double>(json, "validation_loss", path);
  }
  state.recipe_hash = json_get<std::string>(json, "recipe_hash", path);
  if (json.contains("base")) {
    const Json base = json_get<Json>(json, "base", path);
    state.base = {json_get<std::string>(base, "path", path),
                  json_get<std::string>(base, "manifest_xxh3", path)};
  }
  if (json.contains("teacher")) {
    const Json teacher = json_get<Json>(json, "teacher", path);
    state.teacher = {{json_get<std::string>(teacher, "path", path),
                      json_get<std::string>(teacher, "manifest_xxh3", path)},
                     json_get<int64_t>(teacher, "step", path)};
  }
  state.model = json_get<Json>(json, "model", path);
  state.training = json_get<Json>(json, "training", path);
  manifest.tutti_version = json_get<std::string>(json, "tutti_version", path);
  manifest.created = json_get<std::string>(json, "created", path);
  manifest.chunk_bytes = json_get<int64_t>(json, "chunk_bytes", path);
  const int64_t least = manifest.seal ? kSealBytes + 1 : 1;
  if (manifest.chunk_bytes < least || manifest.chunk_bytes > kLargestChunkBytes) {
    fail(ErrorKind::corrupt, "{}: chunk_bytes is {}; {} to {} are allowed", path,
         manifest.chunk_bytes, least, kLargestChunkBytes);
  }
  std::set<std::string> names;
  for (const Json& file : json_get<Json>(json, "files", path)) {
    manifest.files.push_back(
        parse_file(file, manifest.chunk_bytes, manifest.seal.has_value(), path));
    if (!names.insert(manifest.files.back().name).second) {
      fail(ErrorKind::corrupt, "{}: file {} twice", path, manifest.files.back().name);
    }
  }
  names.clear();
  for (const Json& tensor : json_get<Json>(json, "tensors", path)) {
    manifest.tensors.push_back(parse_tensor(tensor, manifest.files, path, coverage));
    if (!names.insert(manifest.tensors.back().name).second) {
      fail(ErrorKind::corrupt, "{}: tensor '{}' twice", path,
           printable(manifest.tensors.back().name));
    }
  }
  return manifest;
}

std::string step_folder_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::optional<int64_t> parse_step_folder_name(std::string_view name) {
  if (!starts_with(name, kStepPrefix)) return std::nullopt;
  int64_t step = 0;
  for (const char digit : name.substr(kStepPrefix.size())) {
    if (std::isdigit(static_cast<unsigned char>(digit)) == 0) return std::nullopt;
    if (step > std::numeric_limits<int64_t>::max() / 10 - 1) return std::nullopt;
    step = step * 10 + (digit - '0');
  }
  if (step_folder_name(step) != name) return std::nullopt;
  return step;
}

std::optional<int64_t> step_of_path(std::string_view path) {
  while (ends_with(path, "/")) path.remove_suffix(1);
  return parse_step_folder_name(base_name(path));
}

void check_same_model(const Json& saved, const Json& expected, std::string_view path) {
  const std::string found = difference(saved, expected, "");
  if (found.empty()) return;
  fail(ErrorKind::usage,
       "{} is a checkpoint of another model: {}; use the recipe it was saved with, or another run "
       "folder",
       path, found);
}

}  // namespace tutti::checkpoint
