#include "tutti/launch/new_run_folder.h"

#include <variant>

#include "tutti/base/error.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/run_history.h"

namespace tutti::launch {
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
  try {
    if (has_run()) return;
    files_.remove_tree(path_);
    const std::string parent = parent_path(path_);
    if (parent_is_new_ && files_.exists(parent) && files_.list(parent).empty()) {
      files_.remove_tree(parent);
    }
  } catch (const Error&) {
    return;  // the failure of the start is reported; this one is ignored
  }
}

bool NewRunFolder::has_run() const {
  if (stays_ || train::read_history(files_, path_).has_started) return true;
  const std::string checkpoints = train::checkpoints_path(path_);
  return files_.exists(checkpoints) && !files_.list(checkpoints).empty();
}

std::unique_ptr<telemetry::Sink> NewRunFolder::watch() {
  return std::make_unique<StartSink>(stays_);
}

}  // namespace tutti::launch
