// Which algorithm was fastest for a matrix product on this kind of GPU with this version of the
// library: measured once, kept in a file for other processes, so that they compute the same bits.
// Of two processes that write at the same moment the later one's file stays, without what the other
// has added since: that is measured again by whoever needs it next.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tutti::engine {

// An algorithm as the library serializes it (cublasLtMatmulAlgo_t), and what it took.
struct TunedGemm {
  std::array<uint64_t, 8> algorithm = {};
  double seconds = 0;
};

class GemmTuning {
 public:
  // folder empty: nothing is read or written. A file of another format is an error; one that says
  // another GPU or version than its name is, too.
  GemmTuning(const std::string& folder, const std::string& gpu, uint64_t library_version);

  const std::string& path() const { return path_; }
  // `key` describes the product: sizes, types, layouts.
  std::optional<TunedGemm> find(const std::string& key) const;
  // Remembers it and writes the file anew; other processes' entries in it are kept.
  void add(const std::string& key, const TunedGemm& choice);

 private:
  void read();

  std::string path_;
  std::string gpu_;
  uint64_t library_version_ = 0;
  std::map<std::string, TunedGemm> choices_;
};

}  // namespace tutti::engine
