#include "tutti/checkpoint/huggingface/folder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/repeated_key.h"
#include "tutti/base/text.h"

namespace tutti::checkpoint {
namespace {

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

bool is_inside(std::string_view path, std::string_view folder) {
  return folder == "." ||
         (starts_with(path, folder) &&
          (path.size() == folder.size() || folder.back() == '/' || path[folder.size()] == '/'));
}

// JSON of limited depth: recursive code over a value must not overflow the stack.
Json read_json(FileSystem& files, const std::string& path) {
  constexpr int kDeepest = 64;
  const std::string text = read_file(files, path);
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      while (++i < text.size() && text[i] != '"') i += text[i] == '\\' ? 1 : 0;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) {
        fail(ErrorKind::corrupt, "{}: nested deeper than {} levels", path, kDeepest);
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return parse_unique_json(text, path);
}

// The model is input of the command: an invalid config.json is a usage error, because a retry does
// not help.
Json read_config(FileSystem& files, const std::string& path) {
  try {
    return read_json(files, path);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::corrupt) throw;
    throw Error(ErrorKind::usage, error.what());
  }
}

// The weight map of the index: tensor -> file.
std::map<std::string, std::string> read_weight_map(const Json& index, const std::string& path) {
  if (!index.is_object()) {
    fail(ErrorKind::corrupt, "{}: {} instead of a JSON object", path, index.type_name());
  }
  const auto weight_map = json_get<Json>(index, "weight_map", path);
  if (!weight_map.is_object() || weight_map.empty()) {
    fail(ErrorKind::corrupt,
         "{}: 'weight_map' is {} instead of an object that maps tensors to files", path,
         weight_map.is_object() ? "empty" : weight_map.type_name());
  }
  std::map<std::string, std::string> out;
  for (const auto& [name, file] : weight_map.items()) {
    if (!file.is_string()) {
      fail(ErrorKind::corrupt, "{}: the file of tensor '{}' is {}", path, printable(name),
           printable(dump_json(file)));
    }
    out[name] = file.get<std::string>();
  }
  return out;
}

}  // namespace

const std::vector<std::string>& hf_side_files() {
  static const std::vector<std::string> names = {"generation_config.json",
                                                 "tokenizer.json",
                                                 "tokenizer_config.json",
                                                 "special_tokens_map.json",
                                                 "tokenizer.model",
                                                 "vocab.json",
                                                 "merges.txt",
                                                 "added_tokens.json",
                                                 "chat_template.jinja"};
  return names;
}

HfFolder::HfFolder(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  if (!files.is_directory(path_)) {
    fail(ErrorKind::not_found,
         "'{}' is not a folder; pass one with config.json and model.safetensors, as "
         "save_pretrained writes it",
         path_);
  }
  if (!files.exists(config_path())) {
    fail(ErrorKind::not_found, "'{}' has no config.json: it is not a transformers model", path_);
  }
  config_ = read_config(files, checked_path(kHfConfig, path_));
  // In the order of transformers: a single file before an index.
  if (files.exists(join_path(path_, kHfSingle))) {
    open_shard(kHfSingle, path_);
  } else if (files.exists(join_path(path_, kHfIndex))) {
    open_index();
  } else {
    fail_without_weights();
  }
}

std::string HfFolder::config_path() const { return join_path(path_, kHfConfig); }

void HfFolder::fail_without_weights() const {
  for (const DirectoryEntry& entry : files_.list(path_)) {
    if (!ends_with(entry.name, ".bin") && !ends_with(entry.name, ".pth") &&
        !ends_with(entry.name, ".pt")) {
      continue;
    }
    fail(ErrorKind::unsupported,
         "'{}' has its weights in '{}', a pickle, which can execute code when it is loaded; have "
         "transformers save it again with safe_serialization=True",
         path_, entry.name);
  }
  fail(ErrorKind::not_found, "'{}' has neither {} nor {}", path_, kHfSingle, kHfIndex);
}

std::string HfFolder::checked_path(const std::string& name, std::string_view named_by) const {
  if (!is_plain_name(name)) {
    fail(ErrorKind::usage, "{}: '{}' is not a plain file name inside the folder", named_by,
         printable(name));
  }
  std::string path = join_path(path_, name);
  const std::string folder = files_.resolve(path_);
  const std::string real = files_.resolve(path);
  if (is_inside(real, folder)) return path;
  const bool in_cache = base_name(parent_path(folder)) == "snapshots" &&
                        is_inside(real, join_path(parent_path(parent_path(folder)), "blobs"));
  if (in_cache) return path;
  fail(ErrorKind::usage,
       "'{}' is a link out of its folder, to '{}'; replace it by a copy of the file", path, real);
}

void HfFolder::open_shard(const std::string& name, std::string_view named_by) {
  const std::string path = checked_path(name, named_by);
  if (!files_.exists(path)) {
    fail(ErrorKind::not_found, "'{}' is missing, but {} names it", path, named_by);
  }
  Shard& shard = shards_.emplace_back(Shard{path, files_.map(path)});
  for (SafetensorsTensor& tensor : parse_safetensors(shard.map->bytes(), path).tensors) {
    const auto [stored, added] =
        tensors_.emplace(tensor.name, StoredTensor{shards_.size() - 1, {}});
    if (!added) {
      fail(ErrorKind::corrupt, "{}: tensor '{}' is in {} too", path, printable(tensor.name),
           shards_[stored->second.shard].path);
    }
    stored->second.tensor = std::move(tensor);
  }
  shard.map->not_needed(0, shard.map->bytes().size());  // headers can be large
}

void HfFolder::open_index() {
  const std::string path = checked_path(kHfIndex, path_);
  const Json index = read_json(files_, path);
  const std::map<std::string, std::string> weight_map = read_weight_map(index, path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  for (const std::string& name : names) open_shard(name, path);
  int64_t bytes = 0;
  for (const auto& [name, stored] : tensors_) {
    bytes += stored.tensor.end - stored.tensor.begin;
    if (weight_map.count(name) > 0) continue;
    fail(ErrorKind::corrupt, "{}: tensor '{}', which {} does not name", shards_[stored.shard].path,
         printable(name), path);
  }
  for (const auto& [name, file] : weight_map) {
    if (!contains(name) || base_name(file_of(name)) != file) {
      fail(ErrorKind::corrupt, "{}: the index has tensor '{}' in '{}', but it is {}", path,
           printable(name), file, contains(name) ? "in '" + file_of(name) + "'" : "nowhere");
    }
  }
  const Json metadata = index.value("metadata", Json::object());
  const Json total = metadata.is_object() ? metadata.value("total_size", Json()) : Json();
  if (total.is_number() && total != bytes) {
    notes_.push_back(fmt::format("{}: total_size is {}, the tensors have {} bytes", kHfIndex,
                                 dump_json(total), bytes));
  }
}

std::vector<std::string> HfFolder::side_files() const {
  std::vector<std::string> found;
  for (const std::string& name : hf_side_files()) {
    if (!files_.exists(join_path(path_, name))) continue;
    checked_path(name, path_);
    found.push_back(name);
  }
  return found;
}

std::vector<std::string> HfFolder::tensor_names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, stored] : tensors_) names.push_back(name);
  return names;
}

const SafetensorsTensor& HfFolder::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  TUTTI_CHECK(found != tensors_.end(), "no tensor {}", name);
  return found->second.tensor;
}

const std::string& HfFolder::file_of(const std::string& name) const {
  return shards_[tensors_.at(name).shard].path;
}

std::string_view HfFolder::bytes(const std::string& name) const {
  const SafetensorsTensor& found = tensor(name);
  return shards_[tensors_.at(name).shard].map->bytes().substr(
      static_cast<size_t>(found.begin), static_cast<size_t>(found.end - found.begin));
}

void HfFolder::release(const std::string& name, int64_t begin, int64_t end) const {
  shards_[tensors_.at(name).shard].map->not_needed(static_cast<size_t>(tensor(name).begin + begin),
                                                   static_cast<size_t>(end - begin));
}

int64_t HfFolder::largest_file_bytes() const {
  size_t largest = 0;
  for (const Shard& shard : shards_) largest = std::max(largest, shard.map->bytes().size());
  return static_cast<int64_t>(largest);
}

}  // namespace tutti::checkpoint
