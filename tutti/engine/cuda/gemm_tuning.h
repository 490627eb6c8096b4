// Cache of the fastest algorithm for a matrix product on this GPU model with this version of the
// library: measured once and stored in a file for other processes, so that they compute the same
// bits. If several processes measure the same product at the same time, as the ranks of a run do,
// all use the choice of the first.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tutti::engine {

// An algorithm as the library serializes it (cublasLtMatmulAlgo_t), and its time.
struct TunedGemm {
  std::array<uint64_t, 8> algorithm = {};
  double seconds = 0;
};

class GemmTuning {
 public:
  // folder empty: nothing is read or written. A file with another format, or whose GPU or version
  // contradicts its name, is an error (corrupt).
  GemmTuning(const std::string& folder, const std::string& gpu, uint64_t library_version);

  const std::string& path() const { return path_; }
  // Why choices cannot be stored, as a message for users; empty if they can.
  const std::string& warning() const { return warning_; }
  // `key` describes the product: sizes, types, layouts.
  std::optional<TunedGemm> find(const std::string& key) const;
  // Returns the choice to use: the one that another process has stored meanwhile, else this one,
  // which is added to the file next to the entries of other processes. If the file cannot be
  // written, later choices stay local to this process.
  TunedGemm add(const std::string& key, const TunedGemm& choice);

 private:
  void read();
  TunedGemm share(const std::string& key, const TunedGemm& choice);

  std::string path_;
  std::string warning_;
  std::string gpu_;
  uint64_t library_version_ = 0;
  std::map<std::string, TunedGemm> choices_;
};

}  // namespace tutti::engine
