#include "tutti/base/object_store.h"

namespace tutti {

ObjectStore* object_store(FileSystem& files, std::string_view path) {
  auto* store = dynamic_cast<ObjectStore*>(&files);
  return store != nullptr && store->holds(path) ? store : nullptr;
}

}  // namespace tutti
