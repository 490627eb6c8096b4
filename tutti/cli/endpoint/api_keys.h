// The file of an endpoint's API keys. One line for each: NAME ID SALT HASH, where HASH is SHA-256
// of salt and secret; the keys themselves are written nowhere. A key is tutti-ID-SECRET. Lines that
// are empty or start with # are skipped.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tutti/base/file.h"

namespace tutti::cli {

class ApiKeys {
 public:
  // Throws not_found, and corrupt naming the line.
  static ApiKeys read(FileSystem& files, const std::string& path);

  bool accepts(const std::string& key) const;  // takes as long whatever of the secret is right
  size_t size() const { return keys_.size(); }

 private:
  struct Key {
    std::string name, salt, hash;
  };
  std::map<std::string, Key> keys_;  // by id
};

// Makes a key for `name`, adds its line to the file at `path`, which may be new, and returns it.
// Throws usage for a name that is empty or has white space.
std::string add_api_key(FileSystem& files, const std::string& path, const std::string& name);

}  // namespace tutti::cli
