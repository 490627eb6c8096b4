// What deployments have served: tokens and their price, by API key and month, summed from the files
// that their endpoints append to (endpoint/use_log.h). Beside it the ledger has what their jobs
// cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/control/store/folder.h"
#include "tutti/endpoint/key_meter.h"

namespace tutti::cli {

struct ServedLine {
  std::string project;
  std::string deployment;
  std::string month;  // "2026-01", UTC, in which its requests ended
  std::string key;    // its id
  std::string client;
  endpoint::KeyUse use;
};

struct Served {
  std::vector<ServedLine> lines;  // by project, deployment, month and key
  int64_t damaged_lines = 0;      // which count as nothing
};

// Of these projects; `month` empty: all.
Served read_served(FileSystem& files, const control::ControlFolder& plane,
                   const std::vector<std::string>& projects, const std::string& month);

std::string usd_text(int64_t pico_usd);  // exact: "0.000090000000"

// One row per line: project, deployment, month, key, client, requests, prompt_tokens,
// cached_tokens, answer_tokens, usd.
std::string served_csv(const Served& served);
std::string served_text(const Served& served);  // with the sums of deployments; empty: nothing
Json to_json(const Served& served);

}  // namespace tutti::cli
