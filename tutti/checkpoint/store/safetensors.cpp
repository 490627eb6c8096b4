#include "tutti/checkpoint/store/safetensors.h"

#include <algorithm>
#include <array>
#include <set>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"

namespace tutti::checkpoint {
namespace {

// Sorted by key: thousands of tensors are found by search, and their order in the file comes from
// the offsets.
using HeaderJson = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kAlignment = 8;
constexpr int64_t kLargestHeader = 100'000'000;  // the limit of the reference implementation
constexpr int kDeepestHeader = 3;                // {name: {"shape": [...]}}

struct TypeName {
  DType dtype;
  const char* name;
};
// Of one type the first name is written. A BOOL is a byte: masks of older models are such buffers.
constexpr const char* kE4m3Name = "F8_E4M3";
constexpr std::array<TypeName, 13> kTypeNames = {{{DType::f32, "F32"},
                                                  {DType::bf16, "BF16"},
                                                  {DType::f16, "F16"},
                                                  {DType::f64, "F64"},
                                                  {DType::u8, "U8"},
                                                  {DType::i8, "I8"},
                                                  {DType::u16, "U16"},
                                                  {DType::i16, "I16"},
                                                  {DType::i32, "I32"},
                                                  {DType::i64, "I64"},
                                                  {DType::u64, "U64"},
                                                  {DType::u8, "BOOL"},
                                                  {DType::u8, kE4m3Name}}};

const char* type_name(DType dtype) {
  for (const TypeName& type : kTypeNames) {
    if (type.dtype == dtype) return type.name;
  }
  TUTTI_CHECK(false, "element type {} without a safetensors name", static_cast<int>(dtype));
}

DType parse_type(const std::string& name, std::string_view path, const std::string& tensor) {
  for (const TypeName& type : kTypeNames) {
    if (name == type.name) return type.dtype;
  }
  fail(ErrorKind::unsupported,
       "{}: tensor '{}' has element type '{}'; Tutti reads F32, BF16, F16, F64, U8, I8, U16, I16, "
       "I32, I64, U64, BOOL and F8_E4M3",
       path, printable(tensor), printable(name));
}

uint64_t read_length(std::string_view file) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint64_t>(static_cast<unsigned char>(file[i])) << (8 * i);
  }
  return length;
}

std::string as_text(const HeaderJson& value) {
  return printable(value.dump(-1, ' ', false, HeaderJson::error_handler_t::replace));
}

// Like parse_json, but a name that appears twice in one object is an error.
HeaderJson parse_header_json(std::string_view text, std::string_view path) {
  std::vector<std::set<std::string>> names;
  const auto check = [&](int depth, HeaderJson::parse_event_t event, HeaderJson& value) {
    switch (event) {
      case HeaderJson::parse_event_t::object_start:
      case HeaderJson::parse_event_t::array_start:
        if (depth >= kDeepestHeader) {
          fail(ErrorKind::corrupt, "{}: the header is nested deeper than {} levels", path,
               kDeepestHeader);
        }
        names.emplace_back();
        break;
      case HeaderJson::parse_event_t::object_end:
      case HeaderJson::parse_event_t::array_end: names.pop_back(); break;
      case HeaderJson::parse_event_t::key:
        if (!names.back().insert(value.get<std::string>()).second) {
          fail(ErrorKind::corrupt, "{}: the header has '{}' twice", path,
               printable(value.get<std::string>()));
        }
        break;
      default: break;
    }
    return true;
  };
  try {
    return HeaderJson::parse(text, check);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::corrupt, "{}: the header is not valid JSON: {}", path, printable(error.what()));
  }
}

int64_t to_size(const HeaderJson& value, std::string_view path, const std::string& tensor,
                const char* key) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{INT64_MAX}) {
    fail(ErrorKind::corrupt, "{}: tensor '{}' has {} in '{}'; only integers from 0 on may be there",
         path, printable(tensor), as_text(value), key);
  }
  return value.get<int64_t>();
}

const HeaderJson& member(const HeaderJson& entry, const char* key,
                         bool (*right_type)(const HeaderJson&), std::string_view path,
                         const std::string& tensor) {
  if (!entry.contains(key)) {
    fail(ErrorKind::corrupt, "{}: tensor '{}' has no '{}'", path, printable(tensor), key);
  }
  if (!right_type(entry.at(key))) {
    fail(ErrorKind::corrupt, "{}: '{}' of tensor '{}' has the wrong type: {}", path, key,
         printable(tensor), as_text(entry.at(key)));
  }
  return entry.at(key);
}

// One entry of the header, offsets still counted from the first tensor byte.
SafetensorsTensor parse_tensor(const std::string& name, const HeaderJson& entry,
                               std::string_view path) {
  constexpr auto kIsText = [](const HeaderJson& value) { return value.is_string(); };
  constexpr auto kIsList = [](const HeaderJson& value) { return value.is_array(); };
  if (!entry.is_object()) {
    fail(ErrorKind::corrupt, "{}: tensor '{}' is described by {} instead of an object", path,
         printable(name), as_text(entry));
  }
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      fail(ErrorKind::corrupt, "{}: tensor '{}' has the unknown key '{}'", path, printable(name),
           printable(key));
    }
  }
  SafetensorsTensor tensor;
  tensor.name = name;
  const auto type = member(entry, "dtype", kIsText, path, name).get<std::string>();
  tensor.dtype = parse_type(type, path, name);
  tensor.e4m3 = type == kE4m3Name;
  for (const HeaderJson& value : member(entry, "shape", kIsList, path, name)) {
    tensor.shape.push_back(to_size(value, path, name, "shape"));
  }
  const HeaderJson& offsets = member(entry, "data_offsets", kIsList, path, name);
  if (offsets.size() != 2) {
    fail(ErrorKind::corrupt, "{}: tensor '{}' has {} data offsets instead of 2", path,
         printable(name), offsets.size());
  }
  tensor.begin = to_size(offsets[0], path, name, "data_offsets");
  tensor.end = to_size(offsets[1], path, name, "data_offsets");
  if (tensor.begin > tensor.end) {
    fail(ErrorKind::corrupt, "{}: tensor '{}' ends at {}, before it begins at {}", path,
         printable(name), tensor.end, tensor.begin);
  }
  const int64_t bytes = checked_bytes(tensor.dtype, tensor.shape);
  if (bytes != tensor.end - tensor.begin) {
    fail(ErrorKind::corrupt, "{}: tensor '{}' of type {} and shape {} needs {} bytes but has {}",
         path, printable(name), dtype_name(tensor.dtype), format_shape(tensor.shape),
         bytes < 0 ? "more than 2^63" : std::to_string(bytes), tensor.end - tensor.begin);
  }
  return tensor;
}

// Tensors must follow each other without gap or overlap and fill the file.
void check_ranges(const std::vector<SafetensorsTensor>& tensors, int64_t data_bytes,
                  std::string_view path) {
  int64_t expected = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.end > data_bytes) {
      fail(ErrorKind::corrupt,
           "{}: tensor '{}' ends at byte {} of the data, but the file has only {}", path,
           printable(tensor.name), tensor.end, data_bytes);
    }
    if (tensor.begin != expected) {
      fail(ErrorKind::corrupt, "{}: tensor '{}' begins at byte {} of the data, {} byte {}", path,
           printable(tensor.name), tensor.begin,
           tensor.begin < expected ? "inside the one before it, which ends at"
                                   : "leaving a gap from",
           expected);
    }
    expected = tensor.end;
  }
  if (expected != data_bytes) {
    fail(ErrorKind::corrupt, "{}: {} bytes after the last tensor", path, data_bytes - expected);
  }
}

}  // namespace

int64_t checked_bytes(DType dtype, const std::vector<int64_t>& shape) {
  // A dimension of 0 makes the tensor empty, however large the others are.
  if (std::any_of(shape.begin(), shape.end(), [](int64_t dim) { return dim < 0; })) return -1;
  if (std::count(shape.begin(), shape.end(), 0) > 0) return 0;
  int64_t bytes = dtype_bytes(dtype);
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return -1;
  }
  return bytes;
}

std::string format_shape(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

SafetensorsHeader parse_safetensors(std::string_view file, std::string_view path) {
  const auto file_bytes = static_cast<int64_t>(file.size());
  if (file_bytes < kLengthBytes) {
    fail(ErrorKind::corrupt, "{}: {} bytes are too few for a safetensors file", path, file_bytes);
  }
  const uint64_t length = read_length(file);
  if (length > uint64_t{kLargestHeader}) {
    fail(ErrorKind::corrupt, "{}: a header of {} bytes; at most {} are allowed", path, length,
         kLargestHeader);
  }
  const auto header_bytes = static_cast<int64_t>(length);
  if (header_bytes > file_bytes - kLengthBytes) {
    fail(ErrorKind::corrupt, "{}: the header of {} bytes does not fit into the file of {} bytes",
         path, header_bytes, file_bytes);
  }
  const std::string_view text = file.substr(kLengthBytes, length);
  if (text.empty() || text.front() != '{') {
    fail(ErrorKind::corrupt, "{}: the header does not begin with '{{'", path);
  }
  const HeaderJson json = parse_header_json(text, path);
  TUTTI_CHECK(json.is_object(), "'{{' began a JSON value that is not an object");

  SafetensorsHeader header;
  header.data_begin = kLengthBytes + header_bytes;
  for (const auto& [name, entry] : json.items()) {
    if (name != "__metadata__") {
      header.tensors.push_back(parse_tensor(name, entry, path));
      continue;
    }
    if (!entry.is_object()) fail(ErrorKind::corrupt, "{}: __metadata__ is not an object", path);
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) {
        fail(ErrorKind::corrupt, "{}: __metadata__ '{}' is not a string", path, printable(key));
      }
      header.metadata[key] = value.get<std::string>();
    }
  }
  // Empty tensors begin where the next one does.
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  check_ranges(header.tensors, file_bytes - header.data_begin, path);
  for (SafetensorsTensor& tensor : header.tensors) {
    tensor.begin += header.data_begin;
    tensor.end += header.data_begin;
  }
  return header;
}

SafetensorsLayout layout_safetensors(std::vector<SafetensorsTensor> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return dtype_bytes(a.dtype) > dtype_bytes(b.dtype);
  });
  const auto quoted = [](const std::string& name) { return dump_json(Json(name)); };
  std::string text = "{";
  if (!metadata.empty()) text += fmt::format("\"__metadata__\":{}", dump_json(Json(metadata)));
  std::set<std::string> names = {"__metadata__"};
  int64_t at = 0;
  for (SafetensorsTensor& tensor : tensors) {
    TUTTI_CHECK(names.insert(tensor.name).second, "tensor {} twice in one file", tensor.name);
    const int64_t bytes = checked_bytes(tensor.dtype, tensor.shape);
    TUTTI_CHECK(bytes >= 0, "tensor {} has impossible shape {}", tensor.name,
                format_shape(tensor.shape));
    tensor.begin = at;
    tensor.end = at += bytes;
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                        text.size() > 1 ? "," : "", quoted(tensor.name),
                        tensor.e4m3 ? kE4m3Name : type_name(tensor.dtype),
                        format_shape(tensor.shape), tensor.begin, tensor.end);
  }
  text += "}";
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');

  SafetensorsLayout layout;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    layout.header += static_cast<char>(text.size() >> (8 * i) & 0xffU);
  }
  layout.header += text;
  const auto data_begin = static_cast<int64_t>(layout.header.size());
  for (SafetensorsTensor& tensor : tensors) {
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  layout.tensors = std::move(tensors);
  layout.file_bytes = data_begin + at;
  return layout;
}

}  // namespace tutti::checkpoint
