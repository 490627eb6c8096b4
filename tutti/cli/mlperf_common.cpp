#include "tutti/cli/mlperf_common.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/cli/common.h"
#include "tutti/cli/home.h"
#include "tutti/cli/progress_bar.h"

namespace tutti::cli {

std::vector<catalog::Benchmark> mlperf_benchmarks() {
  FileSystem& files = posix_file_system();
  return catalog::load_benchmarks(files, catalog_folder(files));
}

const mlperf::Ruleset& ruleset_for(const std::string& asked, const std::string& path,
                                   const catalog::Benchmark* benchmark) {
  const std::string version = asked.empty() ? mlperf::guess_ruleset(path, benchmark) : asked;
  if (version.empty()) {
    fail(ErrorKind::usage,
         "{}: which rules? No round (such as v4.1) is in the path; give --ruleset: {}", path,
         join(mlperf::ruleset_versions(), ", "));
  }
  return mlperf::find_ruleset(version);
}

std::vector<mlperf::Score> mlperf_scores(const std::vector<std::string>& paths,
                                         const std::string& ruleset) {
  FileSystem& files = posix_file_system();
  const auto known = mlperf_benchmarks();
  std::vector<mlperf::ResultFolder> folders;
  for (const std::string& path : paths) {
    const auto found = mlperf::find_results(files, path);
    if (found.empty()) fail(ErrorKind::not_found, "no result_N.txt at or below '{}'", path);
    folders.insert(folders.end(), found.begin(), found.end());
  }
  std::vector<mlperf::Score> scores;
  ProgressBar progress("score", "results");
  for (const mlperf::ResultFolder& folder : folders) {
    throw_if_interrupted();
    const auto* benchmark = catalog::find_benchmark(known, folder.benchmark);
    const mlperf::Ruleset& rules = ruleset_for(ruleset, folder.path, benchmark);
    scores.push_back(mlperf::score_result(files, folder, rules, known));
    progress.update(static_cast<int64_t>(scores.size()), static_cast<int64_t>(folders.size()));
  }
  progress.finish();
  return scores;
}

}  // namespace tutti::cli
