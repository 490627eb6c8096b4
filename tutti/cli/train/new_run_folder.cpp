#include "tutti/cli/train/new_run_folder.h"

#include <variant>

#include "tutti/base/error.h"

namespace tutti::cli {
namespace {

class StartSink final : public telemetry::Sink {
 public:
  explicit StartSink(std::atomic<bool>& started) : started_(started) {}
  void write(const telemetry::Event& event) override {
    if (std::holds_alternative<telemetry::RunStarted>(event.body)) started_ = true;
  }

 private:
  std::atomic<bool>& started_;
};

}  // namespace

NewRunFolder::NewRunFolder(FileSystem& files, const std::string& path, bool keep)
    : files_(files),
      path_(path),
      parent_is_new_(!files.exists(parent_path(path))),
      stays_(keep || files.exists(path)) {}

NewRunFolder::~NewRunFolder() {
  if (stays_) return;
  try {
    files_.remove_tree(path_);
    const std::string parent = parent_path(path_);
    if (parent_is_new_ && files_.exists(parent) && files_.list(parent).empty()) {
      files_.remove_tree(parent);
    }
  } catch (const Error&) {
    return;  // the failure of the start is reported; this one is ignored
  }
}

std::unique_ptr<telemetry::Sink> NewRunFolder::watch() {
  return std::make_unique<StartSink>(stays_);
}

}  // namespace tutti::cli
