// What the page shows, as far as its reader may see it: the roles are those of the commands
// (control/people/roles.h). A section that the reader may not see is not there.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/control/jobs/job_state.h"
#include "tutti/control/people/permission.h"
#include "tutti/control/store/folder.h"
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
    double not_before = 0;  // on the monotonic clock: when it may be drawn again
    std::string html;
  };
  std::mutex mutex_;
  std::map<std::string, Kept> kept_;
};

// How far into its tables a reader has turned.
struct WebPages {
  int64_t live = 0;     // jobs before the first that is shown
  int64_t ended = 0;    // likewise
  int64_t budgets = 0;  // projects
};
// Of the query of an address: "live=50&ended=15". What is not a number is taken for 0.
WebPages read_pages(const std::map<std::string, std::string>& query);

struct WebView {
  const Caller& caller;
  FileSystem& files;
  const ControlFolder& folder;
  RunDrawings& drawings;
  bool controller_runs = false;
  std::string form_key = {};  // of the session, for its buttons; empty: there are none
  WebPages pages = {};
};

// Queue, runs, nodes, budgets, incidents, audit log: those that the reader may see.
std::vector<report::Section> live_sections(const WebView& view);
std::vector<report::Tile> live_tiles(const WebView& view);

std::string queue_html(const WebView& view);    // queue.cpp
std::string budgets_html(const WebView& view);  // budgets.cpp

std::string state_html(JobState state);  // in the colour of how it is
std::string took(int64_t milliseconds);  // "–" for 0
// Links to the parts of a table of `count` entries, of which `most` from `first` on are shown;
// empty where all are. `name` is the table's in the address, `section` where it stands.
std::string pages_html(const WebPages& pages, int64_t WebPages::*table, int64_t most, int64_t count,
                       const char* section);

}  // namespace tutti::control
