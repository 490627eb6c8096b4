#include "tutti/checkpoint/gguf/file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/round_up.h"
#include "tutti/base/text.h"

namespace tutti::checkpoint {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kWrittenVersion = 3;
constexpr int64_t kAlignment = 32;
constexpr uint64_t kMostDimensions = 4;
constexpr const char* kAlignmentKey = "general.alignment";

int64_t bytes_of_kind(GgufKind kind) {
  switch (kind) {
    case GgufKind::u8:
    case GgufKind::i8:
    case GgufKind::boolean: return 1;
    case GgufKind::u16:
    case GgufKind::i16: return 2;
    case GgufKind::u32:
    case GgufKind::i32:
    case GgufKind::f32: return 4;
    case GgufKind::string:
    case GgufKind::u64:
    case GgufKind::i64:
    case GgufKind::f64: return 8;  // of a string at least its length
    case GgufKind::array: break;
  }
  return 12;
}

class GgufReader {
 public:
  GgufReader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::corrupt, "'{}', byte {}: {}; download the file again", path_, at_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  template <typename T>
  T number(const char* what) {
    need(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::string text(const char* what) {
    const auto size = number<uint64_t>(what);
    need(size, what);
    std::string out(bytes_.substr(at_, static_cast<size_t>(size)));
    at_ += static_cast<size_t>(size);
    if (!is_utf8(out)) refuse("{} is not UTF-8", what);
    return out;
  }

  // A count of items that have at least `least` bytes each.
  uint64_t count(int64_t least, const char* what) {
    const auto value = number<uint64_t>(what);
    if (value > (bytes_.size() - at_) / static_cast<uint64_t>(least)) {
      refuse("{} is {}, more than fits into the file", what, value);
    }
    return value;
  }

  GgufKind kind(const std::string& key) {
    const auto value = number<uint32_t>("the type of a value");
    if (value > static_cast<uint32_t>(GgufKind::f64))
      refuse("'{}' has the unknown type {}", key, value);
    return static_cast<GgufKind>(value);
  }

  Json value(GgufKind kind, const std::string& key) {
    const char* what = "a value";
    switch (kind) {
      case GgufKind::u8: return number<uint8_t>(what);
      case GgufKind::i8: return number<int8_t>(what);
      case GgufKind::u16: return number<uint16_t>(what);
      case GgufKind::i16: return number<int16_t>(what);
      case GgufKind::u32: return number<uint32_t>(what);
      case GgufKind::i32: return number<int32_t>(what);
      case GgufKind::f32: return number<float>(what);
      case GgufKind::boolean: return number<uint8_t>(what) != 0;
      case GgufKind::string: return text(what);
      case GgufKind::u64: return number<uint64_t>(what);
      case GgufKind::i64: return number<int64_t>(what);
      case GgufKind::f64: return number<double>(what);
      case GgufKind::array: break;
    }
    refuse("'{}' is an array of arrays, which no known key is", key);
  }

  GgufValue entry(const std::string& key) {
    GgufValue out;
    out.kind = kind(key);
    if (out.kind != GgufKind::array) {
      out.value = value(out.kind, key);
      return out;
    }
    out.element = kind(key);
    out.value = Json::array();
    for (uint64_t left = count(bytes_of_kind(out.element), "the length of an array"); left > 0;
         --left) {
      out.value.push_back(value(out.element, key));
    }
    return out;
  }

  GgufTensor tensor() {
    GgufTensor out;
    out.name = text("the name of a tensor");
    const auto dimensions = number<uint32_t>("the dimensions of a tensor");
    if (dimensions == 0 || dimensions > kMostDimensions) {
      refuse("tensor '{}' has {} dimensions; 1 to 4 are accepted", out.name, dimensions);
    }
    int64_t elements = 1;
    for (uint32_t i = 0; i < dimensions; ++i) {
      const auto size = static_cast<int64_t>(number<uint64_t>("a dimension"));
      if (size <= 0 || __builtin_mul_overflow(elements, size, &elements)) {
        refuse("tensor '{}' has a dimension of {}", out.name, size);
      }
      out.shape.insert(out.shape.begin(), size);
    }
    const auto stored = number<uint32_t>("the type of a tensor");
    const auto type = gguf_type_of(stored);
    if (!type) {
      fail(ErrorKind::unsupported,
           "'{}': tensor '{}' has the element type {}; accepted: F32, F16, BF16, Q8_0 and Q4_0; "
           "take "
           "the model in one of them",
           path_, out.name, stored);
    }
    out.type = *type;
    if (is_blocked(out.type) && out.shape.back() % kGgufBlock != 0) {
      refuse("tensor '{}' has rows of {} elements, not a multiple of the block size {}", out.name,
             out.shape.back(), kGgufBlock);
    }
    out.bytes = gguf_bytes(out.type, elements);
    out.offset = static_cast<int64_t>(number<uint64_t>("the offset of a tensor"));
    if (out.bytes < 0 || out.offset < 0) refuse("tensor '{}' is larger than any file", out.name);
    return out;
  }

  size_t at() const { return at_; }

 private:
  void need(uint64_t size, const char* what) const {
    if (size > bytes_.size() - at_) refuse("the file ends within {}", what);
  }

  std::string_view bytes_;
  const std::string& path_;
  size_t at_ = 0;
};

int64_t alignment_of(const GgufReader& reader, const Json* value) {
  if (value == nullptr) return kAlignment;
  const bool is_number = value->is_number_unsigned();
  const auto alignment = is_number ? value->get<uint64_t>() : 0;
  if (alignment == 0 || alignment % 8 != 0 || alignment > (uint64_t{1} << 20)) {
    reader.refuse("{} is {}; expected a multiple of 8", kAlignmentKey, value->dump());
  }
  return static_cast<int64_t>(alignment);
}

// Every tensor must be inside the file, at a multiple of the alignment, without overlaps.
void check_offsets(const GgufReader& reader, std::vector<GgufTensor> tensors, int64_t data_bytes,
                   int64_t alignment) {
  std::sort(tensors.begin(), tensors.end(),
            [](const GgufTensor& a, const GgufTensor& b) { return a.offset < b.offset; });
  int64_t end = 0;
  for (const GgufTensor& tensor : tensors) {
    if (tensor.offset % alignment != 0 || tensor.offset < end) {
      reader.refuse(
          "tensor '{}' starts at {} of the data, which is not aligned or overlaps another tensor",
          tensor.name, tensor.offset);
    }
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
      reader.refuse("tensor '{}' extends beyond the end of the file", tensor.name);
    }
    end = tensor.offset + tensor.bytes;
  }
}

class GgufHeader {
 public:
  template <typename T>
  void put(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    bytes += text;
  }
  void put_value(GgufKind kind, const Json& value) {
    switch (kind) {
      case GgufKind::u8: return put(value.get<uint8_t>());
      case GgufKind::i8: return put(value.get<int8_t>());
      case GgufKind::u16: return put(value.get<uint16_t>());
      case GgufKind::i16: return put(value.get<int16_t>());
      case GgufKind::u32: return put(value.get<uint32_t>());
      case GgufKind::i32: return put(value.get<int32_t>());
      case GgufKind::f32: return put(value.get<float>());
      case GgufKind::boolean: return put(static_cast<uint8_t>(value.get<bool>() ? 1 : 0));
      case GgufKind::string: return put_text(value.get_ref<const std::string&>());
      case GgufKind::u64: return put(value.get<uint64_t>());
      case GgufKind::i64: return put(value.get<int64_t>());
      case GgufKind::f64: return put(value.get<double>());
      case GgufKind::array: break;
    }
    check_failed(__FILE__, __LINE__, "no array within an array", "");
  }

  std::string bytes;
};

std::string header_of(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  GgufHeader out;
  out.bytes = kMagic;
  out.put(kWrittenVersion);
  out.put(static_cast<uint64_t>(tensors.size()));
  out.put(static_cast<uint64_t>(metadata.size()));
  for (const auto& [key, entry] : metadata) {
    out.put_text(key);
    out.put(static_cast<uint32_t>(entry.kind));
    if (entry.kind != GgufKind::array) {
      out.put_value(entry.kind, entry.value);
      continue;
    }
    out.put(static_cast<uint32_t>(entry.element));
    out.put(static_cast<uint64_t>(entry.value.size()));
    for (const Json& value : entry.value) out.put_value(entry.element, value);
  }
  for (const GgufTensor& tensor : tensors) {
    out.put_text(tensor.name);
    out.put(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) out.put(static_cast<uint64_t>(tensor.shape[i]));
    out.put(static_cast<uint32_t>(tensor.type));
    out.put(static_cast<uint64_t>(tensor.offset));
  }
  out.bytes.resize(
      static_cast<size_t>(round_up(static_cast<int64_t>(out.bytes.size()), kAlignment)));
  return std::move(out.bytes);
}

}  // namespace

GgufFile::GgufFile(FileSystem& files, std::string path)
    : path_(std::move(path)), file_(files.map(path_)) {
  const std::string_view bytes = file_->bytes();
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    fail(ErrorKind::corrupt, "'{}' is not a GGUF file: it does not start with \"GGUF\"", path_);
  }
  GgufReader reader(bytes, path_);
  reader.number<uint32_t>("the magic");
  const auto version = reader.number<uint32_t>("the version");
  if (version != 2 && version != 3) {
    fail(ErrorKind::unsupported, "'{}' has version {}; accepted: 2 and 3 (little-endian)", path_,
         version);
  }
  const uint64_t tensors = reader.count(8 + 4 + 8 + 4 + 8, "the number of tensors");
  const uint64_t keys = reader.count(8 + 4 + 1, "the number of keys");
  for (uint64_t i = 0; i < keys; ++i) {
    const std::string key = reader.text("a key");
    if (!metadata_.emplace(key, reader.entry(key)).second) reader.refuse("duplicate key '{}'", key);
  }
  for (uint64_t i = 0; i < tensors; ++i) {
    tensors_.push_back(reader.tensor());
    if (!by_name_.emplace(tensors_.back().name, i).second) {
      reader.refuse("duplicate tensor '{}'", tensors_.back().name);
    }
  }
  const int64_t alignment = alignment_of(reader, find(kAlignmentKey));
  data_begin_ = static_cast<size_t>(round_up(static_cast<int64_t>(reader.at()), alignment));
  const int64_t data_bytes = static_cast<int64_t>(bytes.size()) - static_cast<int64_t>(data_begin_);
  check_offsets(reader, tensors_, std::max<int64_t>(data_bytes, 0), alignment);
}

const Json* GgufFile::find(const std::string& key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second.value;
}

const GgufTensor* GgufFile::tensor(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

std::string_view GgufFile::bytes(const GgufTensor& tensor) const {
  return file_->bytes().substr(data_begin_ + static_cast<size_t>(tensor.offset),
                               static_cast<size_t>(tensor.bytes));
}

void write_gguf(FileSystem& files, const std::string& path, const GgufMetadata& metadata,
                std::vector<GgufTensor> tensors,
                const std::function<void(const GgufTensor&, const GgufAppend&)>& write) {
  int64_t offset = 0;
  for (GgufTensor& tensor : tensors) {
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    tensor.offset = offset;
    tensor.bytes = gguf_bytes(tensor.type, elements);
    offset = round_up(offset + tensor.bytes, kAlignment);
  }
  const std::string temporary = path + ".tmp";
  const auto out = files.create(temporary);
  const std::string header = header_of(metadata, tensors);
  out->append(header.data(), header.size());
  for (const GgufTensor& tensor : tensors) {
    int64_t written = 0;
    write(tensor, [&](const void* data, size_t bytes) {
      out->append(data, bytes);
      written += static_cast<int64_t>(bytes);
    });
    TUTTI_CHECK(written == tensor.bytes, "{}: {} bytes of {}", tensor.name, written, tensor.bytes);
    const std::string padding(static_cast<size_t>(round_up(written, kAlignment) - written), '\0');
    out->append(padding.data(), padding.size());
  }
  out->sync();
  out->close();
  files.rename(temporary, path);
  files.sync_directory(parent_path(path));
}

}  // namespace tutti::checkpoint
