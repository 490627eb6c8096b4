#include "tutti/train/tasks/gguf_interchange.h"

#include <utility>

#include "tutti/base/error.h"

namespace tutti::train {
namespace {

// A folder for the time of a conversion.
class ScratchFolder {
 public:
  ScratchFolder(FileSystem& files, const std::string& beside, const char* suffix)
      : files_(files), path_(beside) {
    while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
    path_ += suffix;
    if (files.exists(path_)) files.remove_tree(path_);  // of a conversion that was killed
  }
  ~ScratchFolder() {
    try {
      files_.remove_tree(path_);
    } catch (const Error&) {  // what ended the conversion is the error to report
    }
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  FileSystem& files_;
  std::string path_;
};

}  // namespace

ImportedRun import_gguf(FileSystem& files, const std::string& source, const std::string& folder,
                        const ImportOptions& options) {
  if (files.exists(folder)) {
    fail(ErrorKind::usage, "'{}' exists already; choose another name for the run", folder);
  }
  if (options.rope_layout != checkpoint::RopeLayout::half) {
    fail(ErrorKind::usage, "--rope-layout: a GGUF file says itself how its pairs lie");
  }
  const ScratchFolder scratch(files, folder, ".from-gguf");
  files.create_directories(scratch.path());
  std::vector<std::string> notes = checkpoint::write_folder_of(
      files, source, scratch.path(), [&](int64_t /*done*/, int64_t total) {
        if (options.progress) options.progress(0, total);
      });
  ImportOptions named = options;
  named.source_name = source;
  ImportedRun run = import_run(files, scratch.path(), folder, named);
  run.notes.insert(run.notes.begin(), notes.begin(), notes.end());
  return run;
}

ExportedGguf export_gguf(FileSystem& files, const std::string& run, const std::string& path,
                         checkpoint::GgufType type, ExportOptions options) {
  if (files.exists(path)) {
    fail(ErrorKind::usage, "'{}' exists already; choose another name for the GGUF file", path);
  }
  if (options.rope_layout != checkpoint::RopeLayout::half) {
    fail(ErrorKind::usage, "--rope-layout: a GGUF file has the layout that its architecture wants");
  }
  const ScratchFolder scratch(files, path, ".from-run");
  options.dtype.reset();
  ExportedGguf out;
  out.run = export_run(files, run, scratch.path(), options);
  checkpoint::GgufOptions gguf;
  gguf.type = type;
  gguf.name = base_name(run);
  gguf.progress = options.progress;
  out.file = checkpoint::write_gguf_of(files, scratch.path(), path, gguf);
  out.run.folder = path;
  out.run.notes.insert(out.run.notes.end(), out.file.notes.begin(), out.file.notes.end());
  return out;
}

}  // namespace tutti::train
