#include "tutti/checkpoint/store/reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/fetched_file.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/store/elements.h"
#include "tutti/checkpoint/store/safetensors.h"

namespace tutti::checkpoint {
namespace {

// A part of a whole tensor, in row-major memory of its own.
struct Box {
  std::vector<int64_t> offset;
  std::vector<int64_t> shape;
};

// What two boxes have in common; nullopt: nothing.
std::optional<Box> common(const Box& a, const Box& b) {
  Box out = a;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    out.offset[d] = std::max(a.offset[d], b.offset[d]);
    out.shape[d] = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]) - out.offset[d];
    if (out.shape[d] <= 0) return std::nullopt;
  }
  return out;
}

// Position in the memory of `box` of the element at `index` of the whole tensor.
int64_t position(const Box& box, const std::vector<int64_t>& index) {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at = at * box.shape[d] + index[d] - box.offset[d];
  return at;
}

// Copies `part`, which lies in both boxes, from one's memory to the other's.
void copy_box(const Box& part, const Box& from_box, const char* from, const Box& to_box, char* to,
              int64_t element_bytes) {
  // Trailing dimensions that are whole in both are one run with the first that is not.
  size_t inner = part.shape.size();
  int64_t run = 1;
  while (inner > 0) {
    --inner;
    run *= part.shape[inner];
    if (part.shape[inner] != from_box.shape[inner] || part.shape[inner] != to_box.shape[inner]) {
      break;
    }
  }
  std::vector<int64_t> index = part.offset;
  while (true) {
    std::memcpy(to + position(to_box, index) * element_bytes,
                from + position(from_box, index) * element_bytes,
                static_cast<size_t>(run * element_bytes));
    size_t d = inner;
    while (d > 0) {
      --d;
      if (++index[d] < part.offset[d] + part.shape[d]) break;
      index[d] = part.offset[d];
      if (d == 0) return;
    }
    if (inner == 0) return;
  }
}

std::vector<std::string> tensor_names(const Manifest& manifest) {
  std::vector<std::string> names;
  names.reserve(manifest.tensors.size());
  for (const TensorRecord& tensor : manifest.tensors) names.push_back(tensor.name);
  return names;
}

}  // namespace

Reader::Reader(FileSystem& files, std::string path, ParallelFor parallel)
    : path_(std::move(path)), parallel_(std::move(parallel)) {
  const std::string manifest_path = join_path(path_, kManifestName);
  if (!files.exists(manifest_path)) {
    fail(ErrorKind::not_found, "'{}' is not a checkpoint: it has no {}", path_, kManifestName);
  }
  const std::string text = read_file(files, manifest_path);
  manifest_ = parse_manifest(text, manifest_path);
  std::shared_ptr<const SealKey> key;
  if (manifest_.seal) {
    key = find_seal_key(files, *manifest_.seal, path_);
    check_signature(text, *key, manifest_path);
    // A signed one in the place of another; of those without a seal anything could be changed.
    const std::optional<int64_t> step = step_of_path(path_);
    if (step && *step != manifest_.state.step) {
      fail(ErrorKind::corrupt, "{}: it was saved at step {}", manifest_path, manifest_.state.step);
    }
  }
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) index_[manifest_.tensors[i].name] = i;
  for (const FileRecord& file : manifest_.files) {
    const std::string file_path = join_path(path_, file.name);
    maps_.push_back(map_on_demand(files, file_path));
    const auto bytes = static_cast<int64_t>(maps_.back()->bytes().size());
    if (bytes != file.bytes) {
      fail(ErrorKind::corrupt, "{}: {} bytes instead of {}", file_path, bytes, file.bytes);
    }
    opened_.push_back(key ? std::make_unique<OpenedShard>(*key, file, manifest_.piece_bytes())
                          : nullptr);
    verified_.emplace_back(file.chunks.size(), uint8_t{0});
  }
  check_headers();
}

std::string_view Reader::contents(size_t file) const {
  return opened_[file] ? opened_[file]->bytes() : maps_[file]->bytes();
}

// Shard headers are for other readers; here they must say the same as the manifest.
void Reader::check_headers() {
  using Entry = std::tuple<std::string, DType, std::vector<int64_t>, int64_t, int64_t>;
  std::vector<std::vector<Entry>> expected(maps_.size());
  for (const TensorRecord& tensor : manifest_.tensors) {
    for (const Slice& slice : tensor.slices) {
      expected[static_cast<size_t>(slice.file)].emplace_back(tensor.name, tensor.dtype, slice.shape,
                                                             slice.begin, slice.end);
    }
  }
  for (size_t i = 0; i < maps_.size(); ++i) {
    const std::string file_path = join_path(path_, manifest_.files[i].name);
    std::vector<Chunk> chunks;
    if (opened_[i]) {  // what is not opened cannot be read: it ends where the tensors begin
      int64_t end = manifest_.files[i].content_bytes;
      for (const Entry& entry : expected[i]) end = std::min(end, std::get<3>(entry));
      need(chunks, static_cast<int64_t>(i), 0, end);
      verify(chunks);
      chunks.clear();
    }
    // Of a shard that is fetched, what is read has to be there first: up to the first tensor.
    int64_t first = manifest_.files[i].content_bytes;
    for (const Entry& entry : expected[i]) first = std::min(first, std::get<3>(entry));
    if (is_fetched(*maps_[i])) {
      need(chunks, static_cast<int64_t>(i), 0, first);
      verify(chunks);
      chunks.clear();
    }
    const SafetensorsHeader header = parse_safetensors(contents(i), file_path);
    need(chunks, static_cast<int64_t>(i), 0, header.data_begin);
    verify(chunks);
    std::vector<Entry> found;
    for (const SafetensorsTensor& tensor : header.tensors) {
      found.emplace_back(tensor.name, tensor.dtype, tensor.shape, tensor.begin, tensor.end);
    }
    std::sort(found.begin(), found.end());
    std::sort(expected[i].begin(), expected[i].end());
    if (found != expected[i]) {
      fail(ErrorKind::corrupt, "{}: its header names other tensors than {}", file_path,
           kManifestName);
    }
  }
}

const TensorRecord& Reader::tensor(const std::string& name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    const std::string nearest = nearest_word(name, tensor_names(manifest_));
    fail(ErrorKind::not_found, "{}: no tensor '{}'{}", path_, name,
         nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
  }
  return manifest_.tensors[found->second];
}

void Reader::need(std::vector<Chunk>& chunks, int64_t file, int64_t begin, int64_t end) const {
  if (begin == end) return;
  const int64_t piece = manifest_.piece_bytes();
  for (int64_t i = begin / piece; i <= (end - 1) / piece; ++i) {
    if (verified_[static_cast<size_t>(file)][static_cast<size_t>(i)] == 0) {
      chunks.push_back({file, i});
    }
  }
}

std::vector<Reader::Chunk> Reader::without_repeats(std::vector<Chunk> chunks) {
  const auto key = [](const Chunk& chunk) { return std::pair(chunk.file, chunk.index); };
  std::sort(chunks.begin(), chunks.end(),
            [&](const Chunk& a, const Chunk& b) { return key(a) < key(b); });
  chunks.erase(std::unique(chunks.begin(), chunks.end(),
                           [&](const Chunk& a, const Chunk& b) { return key(a) == key(b); }),
               chunks.end());
  return chunks;
}

void Reader::verify(const std::vector<Chunk>& chunks) {
  std::vector<FetchRange> ranges;
  for (const Chunk& chunk : chunks) {
    const MappedFile& file = *maps_[static_cast<size_t>(chunk.file)];
    const int64_t begin = chunk.index * manifest_.chunk_bytes;
    const auto end = static_cast<int64_t>(file.bytes().size());
    ranges.push_back({&file, begin, std::min(manifest_.chunk_bytes, end - begin)});
  }
  fetch(ranges);
  parallel_(static_cast<int64_t>(chunks.size()), [&](int64_t i) {
    const Chunk& chunk = chunks[static_cast<size_t>(i)];
    const auto file = static_cast<size_t>(chunk.file);
    const auto index = static_cast<size_t>(chunk.index);
    const auto chunk_bytes = static_cast<size_t>(manifest_.chunk_bytes);
    const std::string_view bytes = maps_[file]->bytes().substr(index * chunk_bytes, chunk_bytes);
    if (hash_bytes(bytes.data(), bytes.size()) != manifest_.files[file].chunks[index]) {
      fail(ErrorKind::corrupt, "{}: damaged between bytes {} and {}: the checksum does not hold",
           join_path(path_, manifest_.files[file].name), index * chunk_bytes,
           index * chunk_bytes + bytes.size());
    }
    if (opened_[file] && !opened_[file]->open(chunk.index, bytes)) {
      fail(ErrorKind::corrupt, "{}: bytes {} to {} are not those that were sealed there",
           join_path(path_, manifest_.files[file].name), index * chunk_bytes,
           index * chunk_bytes + bytes.size());
    }
    verified_[file][index] = 1;
    leave_memory(file, static_cast<int64_t>(index * chunk_bytes),
                 static_cast<int64_t>(bytes.size()));
  });
}

void Reader::leave_memory(size_t file, int64_t offset, int64_t size) const {
  if (opened_[file] || is_fetched(*maps_[file])) return;
  maps_[file]->not_needed(static_cast<size_t>(offset), static_cast<size_t>(size));
}

void Reader::load(const std::vector<TensorTarget>& targets) {
  struct Copy {
    const Slice* slice;
    Box part;
  };
  struct Job {
    const TensorTarget* target;
    const TensorRecord* tensor;
    Box box;
    std::vector<Copy> copies;
  };
  std::vector<Chunk> chunks;
  std::vector<Job> jobs;
  for (const TensorTarget& target : targets) {
    const TensorRecord& record = tensor(target.name);
    const std::vector<int64_t>& shape =
        target.global_shape.empty() ? target.shape : target.global_shape;
    const bool widen = target.dtype == DType::f32 && is_parameter_type(record.dtype);
    if ((record.dtype != target.dtype && !widen) || record.shape != shape) {
      fail(ErrorKind::usage, "{}: tensor '{}' is {} {} in the checkpoint; expected {} {}", path_,
           target.name, dtype_name(record.dtype), format_shape(record.shape),
           dtype_name(target.dtype), format_shape(shape));
    }
    Job job = {&target, &record, {target.offset, target.shape}, {}};
    job.box.offset.resize(shape.size(), 0);
    for (const Slice& slice : record.slices) {
      if (slice.begin == slice.end) continue;
      const std::optional<Box> part = common(job.box, {slice.offset, slice.shape});
      if (!part) continue;
      // Of a slice of which little is wanted, the chunks from its first wanted byte to its last.
      const Box whole = {slice.offset, slice.shape};
      std::vector<int64_t> last = part->offset;
      for (size_t d = 0; d < last.size(); ++d) last[d] += part->shape[d] - 1;
      const int64_t bytes = dtype_bytes(record.dtype);
      need(chunks, slice.file, slice.begin + position(whole, part->offset) * bytes,
           slice.begin + (position(whole, last) + 1) * bytes);
      job.copies.push_back({&slice, *part});
    }
    jobs.push_back(std::move(job));
  }
  chunks = without_repeats(std::move(chunks));
  verify(chunks);
  parallel_(static_cast<int64_t>(jobs.size()), [&](int64_t i) {
    const Job& job = jobs[static_cast<size_t>(i)];
    const DType stored_type = job.tensor->dtype;
    const bool widen = stored_type != job.target->dtype;
    std::string stored;
    auto* to = static_cast<char*>(job.target->data);
    if (widen) {
      stored.resize(static_cast<size_t>(checked_bytes(stored_type, job.target->shape)));
      to = stored.data();
    }
    for (const Copy& copy : job.copies) {
      const char* file = contents(static_cast<size_t>(copy.slice->file)).data();
      copy_box(copy.part, {copy.slice->offset, copy.slice->shape}, file + copy.slice->begin,
               job.box, to, dtype_bytes(stored_type));
      leave_memory(static_cast<size_t>(copy.slice->file), copy.slice->begin,
                   copy.slice->end - copy.slice->begin);
    }
    if (!widen) return;
    convert_elements(stored_type, stored.data(), DType::f32, job.target->data,
                     static_cast<int64_t>(stored.size()) / dtype_bytes(stored_type),
                     fmt::format("{}: tensor '{}'", path_, job.tensor->name));
  });
}

void Reader::load(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                  void* data) {
  load({{name, dtype, shape, data}});
}

std::string_view Reader::bytes(const std::string& name) {
  const TensorRecord& record = tensor(name);
  if (record.slices.size() != 1) {
    fail(ErrorKind::unsupported, "{}: tensor '{}' is stored in {} slices; load() joins them", path_,
         name, record.slices.size());
  }
  const Slice& slice = record.slices.front();
  std::vector<Chunk> chunks;
  need(chunks, slice.file, slice.begin, slice.end);
  verify(chunks);
  return contents(static_cast<size_t>(slice.file))
      .substr(static_cast<size_t>(slice.begin), static_cast<size_t>(slice.end - slice.begin));
}

void Reader::release(const std::string& name) {
  const int64_t piece = manifest_.piece_bytes();
  for (const Slice& slice : tensor(name).slices) {
    const auto file = static_cast<size_t>(slice.file);
    if (!opened_[file] && !is_fetched(*maps_[file])) {
      leave_memory(file, slice.begin, slice.end - slice.begin);
      continue;
    }
    // Whole chunks of it alone: the others hold what is not released.
    const int64_t first = (slice.begin + piece - 1) / piece;
    const int64_t last = slice.end / piece;
    if (first >= last) continue;
    for (int64_t i = first; i < last; ++i) verified_[file][static_cast<size_t>(i)] = 0;
    if (opened_[file]) opened_[file]->forget(first * piece, last * piece);
    maps_[file]->not_needed(static_cast<size_t>(first * manifest_.chunk_bytes),
                            static_cast<size_t>((last - first) * manifest_.chunk_bytes));
  }
}

void Reader::verify_contents(const TensorFilter& needed) {
  std::vector<Chunk> chunks;
  if (needed) {
    for (const TensorRecord& tensor : manifest_.tensors) {
      if (!needed(tensor.name)) continue;
      for (const Slice& slice : tensor.slices) need(chunks, slice.file, slice.begin, slice.end);
    }
    return verify(without_repeats(std::move(chunks)));
  }
  for (size_t i = 0; i < maps_.size(); ++i) {
    maps_[i]->will_need(0, maps_[i]->bytes().size());
    need(chunks, static_cast<int64_t>(i), 0, manifest_.files[i].content_bytes);
  }
  verify(chunks);
}

}  // namespace tutti::checkpoint
