// Which algorithm was fastest for a matrix product on this kind of GPU with this version of the
// library: measured once, kept in a file for other processes, so that they compute the same bits.
// Of processes that measure the same product at the same time, as the ranks of a run do, the first
// one's choice becomes that of all.
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
  // Why choices are not kept though they should be; empty: they are.
  const std::string& trouble() const { return trouble_; }
  // `key` describes the product: sizes, types, layouts.
  std::optional<TunedGemm> find(const std::string& key) const;
  // The choice that counts: what another process has put into the file meanwhile, else this one,
  // with which the file is written anew. Other processes' entries in it are kept. Where the file
  // cannot be written, choices are this process's alone from then on.
  TunedGemm add(const std::string& key, const TunedGemm& choice);

 private:
  void read();
  TunedGemm share(const std::string& key, const TunedGemm& choice);

  std::string path_;
  std::string trouble_;
  std::string gpu_;
  uint64_t library_version_ = 0;
  std::map<std::string, TunedGemm> choices_;
};

}  // namespace tutti::engine
