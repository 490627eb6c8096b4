#include "tutti/object/file_system.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/fetched_file.h"
#include "tutti/object/curl_transport.h"

namespace tutti::object {
namespace {

constexpr int64_t kInMemoryBytes = int64_t{4} << 20;  // of a mapped object

std::string folder_prefix(const Uri& uri) { return uri.key.empty() ? "" : uri.key + "/"; }

Uri parse_object(const std::string& path) {
  Uri uri = parse_uri(path);
  if (uri.key.empty()) {
    fail(ErrorKind::usage, "'{}' is a bucket; an object is named s3://BUCKET/KEY", path);
  }
  return uri;
}

class ObjectBytes final : public MappedFile {
 public:
  explicit ObjectBytes(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string_view bytes() const override { return bytes_; }

 private:
  std::string bytes_;
};

class RangedObject final : public RangedFile {
 public:
  RangedObject(const Client& client, Uri uri, ObjectFacts facts)
      : client_(client), uri_(std::move(uri)), facts_(std::move(facts)) {}
  int64_t size_bytes() const override { return facts_.size_bytes; }
  void read(int64_t offset, int64_t size, void* out) const override {
    client_.get_range(uri_, offset, size, facts_.etag, static_cast<char*>(out));
  }

 private:
  const Client& client_;
  const Uri uri_;
  const ObjectFacts facts_;
};

ObjectFacts need_object(const Client& client, const std::string& path) {
  const std::optional<ObjectFacts> facts = client.head(parse_object(path));
  if (facts) return *facts;
  fail(ErrorKind::not_found, "cannot read '{}': there is no such object at {}", path,
       client.endpoint());
}

}  // namespace

std::string find_cache_folder(const Environment& environment) {
  if (const auto own = environment("TUTTI_CACHE")) return *own;
  if (const auto cache = environment("XDG_CACHE_HOME")) return join_path(*cache, "tutti");
  if (const auto home = environment("HOME")) return join_path(*home, ".cache/tutti");
  return "/tmp/tutti-cache";
}

RoutedFileSystem::RoutedFileSystem(FileSystem& files, StoreOptions options)
    : files_(files), options_(std::move(options)) {}

const Client& RoutedFileSystem::client() {
  const std::lock_guard lock(mutex_);
  if (client_ == nullptr) {
    Settings settings =
        find_settings(files_, options_.environment ? options_.environment : process_environment());
    std::shared_ptr<Transport> transport = options_.transport;
    if (transport == nullptr) transport = std::make_shared<CurlTransport>(settings.ca_bundle);
    client_ = std::make_unique<Client>(std::move(settings), std::move(transport), options_.retry);
  }
  return *client_;
}

bool RoutedFileSystem::holds(std::string_view path) const { return is_uri(path); }

std::string RoutedFileSystem::spool_folder() {
  if (!options_.spool.empty()) return options_.spool;
  const Environment environment =
      options_.environment ? options_.environment : process_environment();
  return join_path(find_cache_folder(environment), "spool");
}

std::unique_ptr<WritableFile> RoutedFileSystem::create(const std::string& path) {
  if (!is_uri(path)) return files_.create(path);
  return std::make_unique<ObjectWriter>(client(), parse_object(path), options_.write);
}

std::unique_ptr<WritableFile> RoutedFileSystem::open_append(const std::string& path) {
  if (!is_uri(path)) return files_.open_append(path);
  fail(ErrorKind::unsupported, "cannot append to '{}': objects are written whole", path);
}

std::unique_ptr<MappedFile> RoutedFileSystem::map(const std::string& path) {
  if (!is_uri(path)) return files_.map(path);
  const ObjectFacts facts = need_object(client(), path);
  if (facts.size_bytes <= kInMemoryBytes) {
    return std::make_unique<ObjectBytes>(client().get(parse_object(path)));
  }
  auto file = std::make_unique<FetchedFile>(
      std::make_unique<RangedObject>(client(), parse_object(path), facts), spool_folder());
  fetch({{file.get(), 0, facts.size_bytes}});
  return file;
}

std::unique_ptr<RangedFile> RoutedFileSystem::open_ranged(const std::string& path) {
  return std::make_unique<RangedObject>(client(), parse_object(path), need_object(client(), path));
}

bool RoutedFileSystem::exists(const std::string& path) {
  if (!is_uri(path)) return files_.exists(path);
  const Uri uri = parse_uri(path);
  return (!uri.key.empty() && client().head(uri)) || is_directory(path);
}

bool RoutedFileSystem::is_directory(const std::string& path) {
  if (!is_uri(path)) return files_.is_directory(path);
  const Uri uri = parse_uri(path);
  const ListPage page = client().list_page(uri.bucket, folder_prefix(uri), true, "", 1);
  return uri.key.empty() || !page.objects.empty() || !page.prefixes.empty();
}

bool RoutedFileSystem::is_stream(const std::string& path) {
  return !is_uri(path) && files_.is_stream(path);
}

int64_t RoutedFileSystem::size_bytes(const std::string& path) {
  if (!is_uri(path)) return files_.size_bytes(path);
  return need_object(client(), path).size_bytes;
}

std::vector<DirectoryEntry> RoutedFileSystem::list(const std::string& path) {
  if (!is_uri(path)) return files_.list(path);
  const Uri uri = parse_uri(path);
  const std::string prefix = folder_prefix(uri);
  const ListPage page = client().list(uri.bucket, prefix, true);
  std::vector<DirectoryEntry> entries;
  for (const std::string& folder : page.prefixes) {
    std::string name = folder.substr(std::min(prefix.size(), folder.size()));
    if (!name.empty() && name.back() == '/') name.pop_back();
    if (!name.empty()) entries.push_back({std::move(name), true, 0});
  }
  for (const ListedObject& object : page.objects) {
    std::string name = object.key.substr(std::min(prefix.size(), object.key.size()));
    // Other tools mark a folder by an empty object with its name and a slash.
    if (!name.empty()) entries.push_back({std::move(name), false, object.size_bytes});
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

void RoutedFileSystem::create_directories(const std::string& path) {
  if (!is_uri(path)) files_.create_directories(path);
}

void RoutedFileSystem::rename(const std::string& from, const std::string& to) {
  if (!is_uri(from) && !is_uri(to)) return files_.rename(from, to);
  fail(ErrorKind::unsupported, "cannot rename '{}' to '{}': objects keep their names", from, to);
}

void RoutedFileSystem::remove_file(const std::string& path) {
  if (!is_uri(path)) return files_.remove_file(path);
  client().remove(parse_object(path));
}

void RoutedFileSystem::remove_tree(const std::string& path) {
  if (!is_uri(path)) return files_.remove_tree(path);
  const Uri uri = parse_object(path);  // a whole bucket is not removed
  end_uploads(path);
  const ListPage page = client().list(uri.bucket, folder_prefix(uri), false);
  for (const ListedObject& object : page.objects) client().remove({uri.bucket, object.key});
}

void RoutedFileSystem::sync_directory(const std::string& path) {
  if (!is_uri(path)) files_.sync_directory(path);
}

std::string RoutedFileSystem::resolve(const std::string& path) {
  return is_uri(path) ? path : files_.resolve(path);
}

std::string RoutedFileSystem::version(const std::string& path) {
  const std::optional<ObjectFacts> there = client().head(parse_object(path));
  if (!there) return {};
  if (there->etag.empty()) {
    fail(ErrorKind::unsupported, "'{}': {} gives no ETag, without which it cannot be replaced",
         path, client().endpoint());
  }
  return there->etag;
}

void RoutedFileSystem::publish(const std::string& path, std::string_view bytes,
                               const std::string& version, bool& may_be_there) {
  may_be_there = false;
  const Condition condition = {version.empty(), version};
  try {
    client().put(parse_object(path), bytes, condition, &may_be_there);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
    fail(ErrorKind::unsupported,
         "{}: checkpoints are committed by conditional writes, so that no process overwrites what "
         "another one saves; keep them on a disk (leave checkpoint.store empty) or in a store that "
         "has such writes, such as AWS, Ceph or MinIO; corpora may stay in this one",
         error.what());
  }
}

int64_t RoutedFileSystem::end_uploads(const std::string& folder) {
  const Uri uri = parse_object(folder);
  int64_t ended = 0;
  for (const Upload& upload : client().list_uploads(uri.bucket, folder_prefix(uri))) {
    client().abort_upload({uri.bucket, upload.key}, upload.id);
    ++ended;
  }
  return ended;
}

FileSystem& file_system() {
  static RoutedFileSystem files(posix_file_system());
  return files;
}

}  // namespace tutti::object
