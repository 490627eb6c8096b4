// RoutedFileSystem's way to end the uploads of one object, whose writer is gone.
#include "tutti/base/error.h"
#include "tutti/object/file_system.h"
#include "tutti/object/uri.h"

namespace tutti::object {

int64_t RoutedFileSystem::end_uploads_of(const std::string& path) {
  const Uri uri = parse_uri(path);
  if (uri.key.empty()) {
    fail(ErrorKind::usage, "'{}' is a bucket; an object is named s3://BUCKET/KEY", path);
  }
  int64_t ended = 0;
  for (const Upload& upload : client().list_uploads(uri.bucket, uri.key)) {
    if (upload.key != uri.key) continue;  // of another that begins with this name
    client().abort_upload({uri.bucket, upload.key}, upload.id);
    ++ended;
  }
  return ended;
}

}  // namespace tutti::object
