#include "tutti/catalog/published.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::catalog {
namespace {

// The fields of one line; a field in quotes may hold commas and doubled quotes.
std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"') fields.back() += line[++i];
      else quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + "\"";
}

class Row {
 public:
  Row(const std::vector<std::string>& header, std::vector<std::string> fields, std::string where)
      : fields_(std::move(fields)), where_(std::move(where)) {
    if (fields_.size() != header.size()) {
      fail(ErrorKind::usage, "{}: {} fields, the header has {}", where_, fields_.size(),
           header.size());
    }
    for (size_t i = 0; i < header.size(); ++i) index_[header[i]] = i;
  }

  std::string text(const std::string& column) const {
    const auto found = index_.find(column);
    return found == index_.end() ? std::string() : std::string(trim(fields_[found->second]));
  }
  std::string needed(const std::string& column) const {
    std::string value = text(column);
    if (value.empty()) fail(ErrorKind::usage, "{}: {} is missing", where_, column);
    return value;
  }
  // A number above zero; `fallback` where there is none.
  double number(const std::string& column, double fallback) const {
    const std::string value = text(column);
    return value.empty() ? fallback : read(column, value);
  }
  // "yes" is true; "no" and nothing are false.
  bool flag(const std::string& column) const {
    const std::string value = text(column);
    if (value != "yes" && value != "no" && !value.empty()) {
      fail(ErrorKind::usage, "{}: {} is '{}'; write yes or no", where_, column, value);
    }
    return value == "yes";
  }
  double number(const std::string& column) const { return read(column, needed(column)); }

 private:
  double read(const std::string& column, const std::string& value) const {
    double number = 0;
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (status != std::errc() || end != value.data() + value.size() || !std::isfinite(number) ||
        number <= 0) {
      fail(ErrorKind::usage, "{}: {} is '{}'; write a number above 0", where_, column, value);
    }
    return number;
  }

  std::map<std::string, size_t> index_;
  std::vector<std::string> fields_;
  std::string where_;
};

PublishedResult result_of(const Row& row) {
  PublishedResult result;
  result.round = row.text("round");
  result.benchmark = row.needed("benchmark");
  result.submitter = row.text("submitter");
  result.system = row.text("system");
  result.accelerator = row.needed("accelerator");
  result.accelerators = std::llround(row.number("num_accelerators"));
  result.global_batch_samples = std::llround(row.number("global_batch", 0));
  result.precision = row.text("precision");
  result.minutes = row.number("minutes");
  result.raw_minutes = row.number("raw_minutes", result.minutes);
  result.samples_to_target = row.number("samples_to_target");
  result.compliant = row.flag("compliant");
  result.source = row.needed("source");
  return result;
}

}  // namespace

std::vector<PublishedResult> parse_published(std::string_view csv, const std::string& origin) {
  std::vector<PublishedResult> results;
  std::vector<std::string> header;
  int64_t number = 0;
  for (const std::string_view raw : split(csv, '\n')) {
    ++number;
    const std::string_view line = trim(raw);
    if (line.empty() || line.front() == '#') continue;
    if (header.empty()) {
      header = csv_fields(line);
      continue;
    }
    results.push_back(
        result_of(Row(header, csv_fields(line), fmt::format("{}:{}", origin, number))));
  }
  return results;
}

std::vector<PublishedResult> load_published(FileSystem& files,
                                            const std::vector<std::string>& folders) {
  std::vector<PublishedResult> results;
  for (const std::string& folder : folders) {
    if (!files.is_directory(folder)) continue;
    for (const DirectoryEntry& entry : files.list(folder)) {
      if (entry.is_directory || !ends_with(entry.name, ".csv")) continue;
      const std::string path = join_path(folder, entry.name);
      const auto more = parse_published(read_file(files, path), path);
      results.insert(results.end(), more.begin(), more.end());
    }
  }
  return results;
}

std::string format_published(const std::vector<PublishedResult>& results) {
  std::string csv =
      "round,benchmark,submitter,system,accelerator,num_accelerators,global_batch,precision,"
      "minutes,raw_minutes,samples_to_target,compliant,source\n";
  for (const PublishedResult& r : results) {
    csv += fmt::format("{},{},{},{},{},{},{},{},{:.6g},{:.6g},{:.8g},{},{}\n", csv_field(r.round),
                       csv_field(r.benchmark), csv_field(r.submitter), csv_field(r.system),
                       csv_field(r.accelerator), r.accelerators,
                       r.global_batch_samples > 0 ? fmt::format("{}", r.global_batch_samples) : "",
                       csv_field(r.precision), r.minutes, r.raw_minutes, r.samples_to_target,
                       r.compliant ? "yes" : "no", csv_field(r.source));
  }
  return csv;
}

}  // namespace tutti::catalog
