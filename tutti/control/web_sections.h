// What the page shows, as far as its reader may see it: the roles are those of the commands
// (roles.h). A section that the reader may not see is not there.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/control/control_folder.h"
#include "tutti/control/permission.h"
#include "tutti/report/page.h"

namespace tutti::control {

// Drawings of runs, kept while their record does not grow. For any thread.
class RunDrawings {
 public:
  // The curves of a run; empty where there is nothing to draw yet.
  std::string draw(FileSystem& files, const std::string& run_folder, const std::string& id);

 private:
  struct Kept {
    int64_t bytes = 0;
    std::string html;
  };
  std::mutex mutex_;
  std::map<std::string, Kept> kept_;
};

struct WebView {
  const Caller& caller;
  FileSystem& files;
  const ControlFolder& folder;
  RunDrawings& drawings;
  bool controller_runs = false;
};

// Queue, runs, nodes, budgets, incidents, trail: those that the reader may see.
std::vector<report::Section> live_sections(const WebView& view);
std::vector<report::Tile> live_tiles(const WebView& view);

std::string budgets_html(const Caller& caller);  // web_budgets.cpp

}  // namespace tutti::control
